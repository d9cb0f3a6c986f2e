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
  200: "The server has too many pages open to tell this one what happens. The run goes on; this page looks again by itself.",
  401: "The server was started anew and does not know this page. Open the address that it printed; then this page goes on by itself.",
  404: "The folder of this run is gone. If it comes back, so does this page.",
};

// A stream of a run's states. A browser reconnects by itself when a connection breaks, but not when the
// server refuses it, or says that the run is gone: then it is opened anew, later and later.
export function follow(run, { state, trouble, lost }) {
  const SOON = 1000, LATE = 30000;
  let source = null, timer = 0, wait = SOON, over = false;

  function open() {
    source = new EventSource(`/api/${runPath(run)}/events`);
    source.addEventListener("state", (event) => { wait = SOON; state(JSON.parse(event.data)); });
    source.addEventListener("trouble", (event) => { wait = SOON; trouble?.(JSON.parse(event.data).problem); });
    source.addEventListener("gone", () => again());
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) again(); else lost?.(REFUSED[0]); };
  }

  async function again() {
    source.close();
    clearTimeout(timer);
    timer = setTimeout(open, wait * (0.75 + Math.random() / 2)); // not all pages at the same moment
    wait = Math.min(LATE, 2 * wait);
    let why = REFUSED[0];
    try { await get(runPath(run)); why = REFUSED[200]; } catch (problem) { why = REFUSED[problem.status ?? 0] ?? problem.message; }
    if (!over && source.readyState === EventSource.CLOSED) lost?.(why);
  }

  open();
  return () => { over = true; clearTimeout(timer); source.close(); };
}
