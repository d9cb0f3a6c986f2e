// The pages by their address, and what they share: navigation, focus, light and dark.

import { h, loading, problemBox } from "/static/dom.js";

const pages = {
  runs: () => import("/static/pages/runs.js"),
  new: () => import("/static/pages/new.js"),
  run: () => import("/static/pages/run.js"),
  owner: () => import("/static/pages/owner.js"),
  whatif: () => import("/static/pages/whatif.js"),
  compare: () => import("/static/pages/compare.js"),
};
const main = document.getElementById("main");
let leave = null, turn = 0;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function show(focus) {
  const mine = ++turn;
  leave?.();
  leave = null;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const name = parts[0] in pages ? parts[0] : "runs";
  for (const link of document.querySelectorAll("[data-page]")) {
    const here = link.dataset.page === name || (link.dataset.page === "runs" && ["run", "owner"].includes(name));
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const room = h("div", {}, loading());
  main.replaceChildren(room);
  try {
    const page = await pages[name]();
    const gone = await page.show(room, { parts: parts.slice(1), query: new URLSearchParams(query ?? "") });
    if (mine !== turn) { gone?.(); return; }
    leave = gone ?? null;
  } catch (problem) {
    if (mine !== turn) return;
    room.replaceChildren(problemBox(problem, () => show(true)));
  }
  const title = main.querySelector("h1");
  document.title = title ? `${title.textContent} · noisemarket` : "noisemarket";
  if (focus) main.focus({ preventScroll: true });
}

const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* not allowed */ }
  root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
};
theme();
dark.addEventListener("change", theme);
addEventListener("beforeprint", () => { root.dataset.theme = "light"; }); // charts are drawn anew
addEventListener("afterprint", theme);
document.getElementById("theme").addEventListener("click", () => {
  const next = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); } catch { /* not allowed */ }
  root.dataset.theme = next;
});
document.querySelector(".skip").addEventListener("click", (event) => { // its address is not that of a page
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => { scrollTo(0, 0); show(true); });
show(false);
