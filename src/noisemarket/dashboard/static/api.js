// Talking to the server: JSON in, JSON out; a refusal is an Error with the server's own sentence.

async function answer(response) {
  const text = await response.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* not JSON */ }
  if (!response.ok) {
    const problem = new Error(found?.problem ?? `The server answered ${response.status}.`);
    problem.status = response.status;
    throw problem;
  }
  return found;
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api/${path}`, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The server does not answer. Is noisemarket dashboard still running?");
  }
  return answer(response);
}

export const get = (path, signal) => ask(path, { signal });

export const post = (path, body = {}, signal) => ask(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

export const runPath = (run) => `runs/${encodeURIComponent(run)}`;

// A stream of a run's states. Browsers reconnect by themselves; `lost` hears of it.
export function follow(run, { state, lost }) {
  const source = new EventSource(`/api/${runPath(run)}/events`);
  source.addEventListener("state", (event) => state(JSON.parse(event.data)));
  source.addEventListener("gone", () => source.close());
  source.onerror = () => lost?.();
  return () => source.close();
}
