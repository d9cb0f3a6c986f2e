// Talking to the server: JSON in, JSON out; a refusal is an Error with the server's own sentence.

async function answer(response) {
  const text = await response.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* not JSON */ }
  if (!response.ok) {
    const problem = new Error(found?.problem ?? `The server answered ${response.status}.`);
    problem.status = response.status;
    problem.fields = found?.fields;
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
export const runPage = (run) => `#/run/${encodeURIComponent(run)}`;
export const comparing = (runs) => `compare?${new URLSearchParams([...runs].map((run) => ["run", run]))}`;

const REFUSED = {
  0: "The server does not answer just now. The run itself goes on; this page looks again by itself.",
  401: "The server was started anew and does not know this page. Open the address that it printed; then this page goes on by itself.",
  404: "The folder of this run is gone. If it comes back, so does this page.",
};

// Asks for a run's state every second and tells each that is new; where it is refused, later and later.
export function follow(run, { state, lost }) {
  const SOON = 1000, LATE = 30000, quit = new AbortController();
  let timer = 0, wait = SOON, last = "";

  async function look() {
    let next = SOON;
    try {
      const found = await get(`${runPath(run)}/state`, quit.signal);
      const text = JSON.stringify(found);
      if (text !== last) state(found);
      last = text;
      wait = SOON;
    } catch (problem) {
      if (quit.signal.aborted) return;
      lost(REFUSED[problem.status ?? 0] ?? `${problem.message} This page looks again by itself.`);
      last = "";
      next = wait * (0.75 + Math.random() / 2); // not all pages at the same moment
      wait = Math.min(LATE, 2 * wait);
    }
    if (!quit.signal.aborted) timer = setTimeout(look, next);
  }

  look();
  return () => { quit.abort(); clearTimeout(timer); };
}
