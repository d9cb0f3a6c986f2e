// The table of contracts: sorted, filtered and paged by the server; a name opens its owner.

import { get, runPath } from "/static/api.js";
import { empty, h, number, perCent, say, short, table as grid, tag } from "/static/dom.js";

const PAGE = innerWidth < 640 ? 12 : 50;

export function contracts(room, run, about) {
  const view = { sort: "saving", down: true, search: "", state: "", sold: false, offset: 0 };
  const search = h("input", { id: "owner-search", type: "search", oninput: () => change({ search: search.value }) });
  const state = h("select", { id: "contract-state", onchange: () => change({ state: state.value }) }, h("option", { value: "" }, "all"));
  const sold = h("input", { id: "sold", type: "checkbox", onchange: () => change({ sold: sold.checked }) });
  const download = h("a", { class: "button plain", download: "" }, "Download CSV");
  const list = h("div", {}), pager = h("div", { class: "tools", style: "margin:.8rem 0 0" });
  let turn = 0, timer = 0;

  room.replaceChildren(h("h2", { id: "contracts-title" }, "Contracts"),
    h("div", { class: "tools", role: "search" },
      h("div", {}, h("label", { for: "owner-search" }, "Find an owner"), search),
      h("div", {}, h("label", { for: "contract-state" }, "State"), state),
      h("div", { class: "check" }, sold, h("label", { for: "sold" }, about.kind === "run" ? "only sellers" : "only those that would sell")),
      h("div", { class: "end" }, download)), list, pager);

  function change(next) {
    Object.assign(view, { offset: 0 }, next);
    clearTimeout(timer);
    timer = setTimeout(refresh, 150);
  }

  const query = (more) => new URLSearchParams({ search: view.search, state: view.state, sold: view.sold, ...more });

  async function refresh() {
    const mine = ++turn;
    let found;
    try {
      found = await get(`${runPath(run)}/contracts?${query({ sort: view.sort, descending: view.down, offset: view.offset, limit: PAGE })}`);
    } catch (problem) {
      if (mine === turn) list.replaceChildren(h("p", { class: "note", role: "alert" }, problem.message));
      return;
    }
    if (mine !== turn) return;
    download.href = `/api/${runPath(run)}/contracts.csv?${query({})}`;
    state.replaceChildren(...["", ...found.states].map((one) => h("option", { value: one, selected: one === view.state }, one || "all")));
    if (!found.total) {
      list.replaceChildren(empty("No contracts yet", about.kind === "run" ? "They appear here as soon as owners and curator have signed them." : "They appear here as soon as owners and curator agree."));
      pager.replaceChildren();
      return;
    }
    const focused = document.activeElement?.dataset?.sort;
    list.replaceChildren(found.rows.length ? grid({
      caption: `${found.found} of ${found.total} contracts of ${run}`, rows: found.rows, sort: { key: view.sort, down: view.down }, onsort,
      columns: [
        { key: "owner", name: "Owner", header: true, sort: true, cell: (row) => h("a", { href: `#/owner/${encodeURIComponent(run)}/${encodeURIComponent(row.owner)}` }, row.owner) },
        { key: "saving", name: "Saving", num: true, sort: true, cell: (row) => short(row.saving) },
        { key: "sigma", name: "Sigma", num: true, sort: true, cell: (row) => short(row.sigma) },
        { key: "payment", name: `Payment, ${about.currency}`, num: true, sort: true, cell: (row) => number(row.payment) },
        { key: "epsilon", name: "Epsilon", num: true, sort: true, cell: (row) => row.epsilon === null ? "no bound" : short(row.epsilon) },
        { key: "weight", name: "Weight", num: true, sort: true, cell: (row) => row.weight === null ? "–" : perCent(100 * row.weight, 2) },
        { key: "paid", name: `Paid, ${about.currency}`, num: true, sort: true, cell: (row) => number(row.paid) },
        { key: "state", name: "State", sort: true, cell: (row) => row.state ? tag(row.state) : "–" },
      ].filter((column) => about.kind === "run" || !["epsilon", "weight", "paid"].includes(column.key)),
    }) : empty("Nothing matches", "No contract fits what you look for."));
    if (focused) list.querySelector(`[data-sort="${focused}"]`)?.focus();
    const end = Math.min(view.offset + PAGE, found.found);
    pager.replaceChildren(...[h("p", { class: "note", style: "margin:0;flex:1" }, found.rows.length ? `${view.offset + 1} to ${end} of ${number(found.found, 0)}` : ""),
      found.found > PAGE && h("button", { type: "button", class: "plain", disabled: view.offset === 0, onclick: () => { view.offset -= PAGE; refresh(); } }, "Earlier"),
      found.found > PAGE && h("button", { type: "button", class: "plain", disabled: end >= found.found, onclick: () => { view.offset += PAGE; refresh(); } }, "Later")].filter(Boolean));
  }

  function onsort(key) {
    view.down = view.sort === key ? !view.down : key !== "owner" && key !== "state";
    Object.assign(view, { sort: key, offset: 0 });
    refresh();
    say(`Sorted by ${key}, ${view.down ? "descending" : "ascending"}.`);
  }

  return { refresh };
}
