// All runs: filter, sort, choose some to compare.

import { comparing, get, runPage } from "/static/api.js";
import { drawn, empty, h, money, number, perCent, problemBox, say, table, tag, when } from "/static/dom.js";

const KINDS = { run: "whole market", negotiate: "negotiation", compare: "comparison", season: "season", reproduction: "reproduction", train: "training", calibrate: "calibration", audit: "audit", other: "other" };
const link = (run) => h("a", { href: runPage(run.name), "data-focus": `#${run.name}` }, run.name);
const what = (run) => run.kind === "compare" ? run.mechanisms.length ? `${run.mechanisms.length} mechanisms` : "–" : run.mechanism ?? "–";
const accuracy = (run) => run.accuracy !== null ? [perCent(run.accuracy), h("small", {}, drawn(run))]
  : run.quality !== null && run.quality !== undefined ? [`≈ ${perCent(run.quality)}`, h("small", {}, "predicted")] : "–";

export async function show(room) {
  let runs = await get("runs");
  const about = await get("about");
  const names = Object.fromEntries(about.mechanisms.map((one) => [one.mechanism, one.name]));
  const chosen = new Set();
  const view = { text: "", state: "", mechanism: "", key: "started", down: true };
  let shown = "";

  const search = h("input", { id: "search", type: "search", placeholder: "name or data", oninput: () => { view.text = search.value.toLowerCase(); draw(); } });
  const state = h("select", { id: "state", onchange: () => { view.state = state.value; draw(); } },
    h("option", { value: "" }, "all"), ["running", "complete", "incomplete"].map((one) => h("option", { value: one }, one)));
  const mechanism = h("select", { id: "mechanism", onchange: () => { view.mechanism = mechanism.value; draw(); } });
  const compare = h("button", { type: "button", class: "plain", disabled: true, onclick: () => {
    location.hash = `#/${comparing(chosen)}`;
  } }, "Compare");
  const list = h("div", {}), results = h("div", {});
  const tools = h("div", { class: "tools", role: "search" },
    h("div", {}, h("label", { for: "search" }, "Find"), search),
    h("div", {}, h("label", { for: "state" }, "State"), state),
    h("div", {}, h("label", { for: "mechanism" }, "Mechanism"), mechanism),
    h("div", { class: "end" }, compare));

  room.replaceChildren(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, "Runs"),
      h("p", { class: "lead" }, "What is in the folder ", h("code", {}, about.folder), ", started here or in a terminal.")),
      h("a", { class: "button", href: "#/new" }, "New run")),
    list);

  function draw() {
    const found = [...new Set(runs.map((run) => run.mechanism).filter(Boolean))].sort();
    mechanism.replaceChildren(h("option", { value: "" }, "all"), ...found.map((one) =>
      h("option", { value: one, selected: one === view.mechanism }, names[one] ?? one)));
    for (const run of chosen) if (!runs.some((one) => one.name === run)) chosen.delete(run);
    mark();
    if (!runs.length) {
      list.replaceChildren(empty("No runs yet", "Start a market here, or with noisemarket run in a terminal: it shows up on this page by itself.",
        h("p", {}, h("a", { class: "button", href: "#/new" }, "Start a market"), " ", h("a", { class: "button plain", href: "#/whatif" }, "Ask what if"))));
      return;
    }
    const some = runs.filter((run) => (!view.state || run.state === view.state)
      && (!view.mechanism || run.mechanism === view.mechanism)
      && `${run.name} ${run.preset} ${run.data} ${run.mechanism} ${KINDS[run.kind]}`.toLowerCase().includes(view.text));
    const value = (run) => view.key === "accuracy" ? run.accuracy ?? run.quality : run[view.key];
    some.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
      return view.down ? -order : order;
    });
    const columns = [
      { key: "name", name: "Run", header: true, sort: true, wide: true, cell: (run) => [h("input", {
        type: "checkbox", checked: chosen.has(run.name), "aria-label": `Choose ${run.name} to compare`, "data-focus": run.name,
        onchange: (event) => { if (event.target.checked) chosen.add(run.name); else chosen.delete(run.name); mark(); },
      }), " ", link(run)] },
      { key: "state", name: "State", sort: true, cell: (run) => tag(run.state) },
      { key: "kind", name: "What", sort: true, cell: (run) => KINDS[run.kind] ?? run.kind },
      { key: "mechanism", name: "Mechanism", sort: true, cell: (run) => names[run.mechanism] ?? what(run) },
      { key: "data", name: "Data", sort: true, cell: (run) => run.preset ? run.data : "–" },
      { key: "owners", name: "Owners", num: true, sort: true, cell: (run) => number(run.owners, 0) },
      { key: "accuracy", name: "Accuracy", num: true, sort: true, cell: accuracy },
      { key: "paid", name: "Paid", num: true, sort: true, cell: (run) => [money(run.paid, run.currency), run.kind === "negotiate" && run.paid !== null && h("small", {}, "agreed")] },
      { key: "started", name: "Started", sort: true, cell: (run) => when(run.started) },
    ];
    const { sort: focused, focus } = document.activeElement?.dataset ?? {};
    if (!list.contains(tools)) list.replaceChildren(h("div", { class: "box" }, tools, results));
    results.replaceChildren(
      some.length ? table({ caption: `${some.length} of ${runs.length} runs`, columns, rows: some, sort: view, onsort, dense: true })
        : empty("Nothing matches", "No run fits what you look for. Change or clear the filters."));
    if (focused) list.querySelector(`[data-sort="${focused}"]`)?.focus();
    if (focus) [...list.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focus)?.focus();
  }

  function onsort(key) {
    view.down = view.key === key ? !view.down : ["accuracy", "paid", "owners", "started"].includes(key);
    view.key = key;
    draw();
    say(`Sorted by ${key}, ${view.down ? "descending" : "ascending"}.`);
  }

  function mark() {
    compare.disabled = chosen.size === 0;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    compare.className = chosen.size ? "" : "plain";
  }

  draw();
  const timer = setInterval(async () => {
    if (document.hidden || room.contains(document.activeElement) && document.activeElement.type === "search") return;
    try {
      const next = await get("runs");
      const text = JSON.stringify(next);
      if (text !== shown) { shown = text; runs = next; draw(); }
    } catch (problem) {
      if (!list.querySelector(".problem")) list.prepend(problemBox(problem));
      shown = "";
    }
  }, 2500);
  shown = JSON.stringify(runs);
  return () => clearInterval(timer);
}
