// One owner, for that owner: what did I sell, for what, is it recorded.

import { get, runPage, runPath } from "/static/api.js";
import { Chart, heatMap } from "/static/charts.js";
import { facts, h, money, short, tag, when } from "/static/dom.js";

export async function show(room, { parts }) {
  const [run, owner] = parts;
  const found = await get(`${runPath(run)}/owner?name=${encodeURIComponent(owner)}`);
  const { row, contract } = found;
  const recorded = h("dd", {}, contract ? "Checking the ledger …" : "No: this was a negotiation alone. Nothing was signed, and nothing is owed.");

  room.replaceChildren(
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/runs" }, "Runs"), " / ",
      h("a", { href: runPage(run) }, run), " / owner ", owner),
    h("div", { class: "head" }, h("h1", { class: "grow" }, `Owner ${owner}`), row.state && tag(row.state)),
    h("section", { class: "box" }, facts(["Noise given up", short(row.saving), `adds sigma ${short(row.sigma)}`], ["Agreed payment", money(row.payment, found.currency)],
      row.paid !== null && ["Paid", money(row.paid, found.currency)], contract && ["Epsilon", contract.epsilon_agreed === null ? "no bound" : short(contract.epsilon_agreed), `at delta ${contract.delta}`])),
    h("section", { class: "box", "aria-labelledby": "words" }, h("h2", { id: "words" }, "In plain words"),
      h("dl", { class: "words" }, (found.words ?? []).map((one) => [h("dt", {}, one.question), h("dd", {}, one.answer)]),
        h("dt", {}, "Is it recorded?"), recorded)));

  if (found.account) room.append(wallet(found.account, found.currency));
  const more = h("div", { class: "cols" });
  if (found.trace?.round.length || found.statement) room.append(more);
  let chart = null;
  if (found.trace?.round.length) {
    chart = new Chart({ title: "Privacy that was spent", why: "Epsilon of all updates up to each round, at the contract's delta.", x: "round", y: "epsilon so far", whole: true });
    more.append(h("section", { class: "box" }, chart.node));
    const known = found.trace.epsilon.map((one) => one ?? NaN);
    chart.update([{ label: "spent", colour: "--market", x: found.trace.round, y: known, dots: 5 },
      contract.epsilon_agreed !== null && { label: "agreed", colour: "--exact", dash: true, x: [found.trace.round[0], contract.rounds], y: [contract.epsilon_agreed, contract.epsilon_agreed] }]);
  }
  if (found.statement) {
    more.append(h("section", { class: "box" }, h("h2", {}, "Privacy statement"), h("ul", { class: "lines" }, found.statement.map((line) => h("li", {}, line)))));
  }
  if (found.policy) {
    const maps = h("div", { class: "cols" });
    room.append(maps);
    maps.append(h("section", { class: "box" }, heatMap({ title: "How this owner plays", table: found.policy.owner })),
      h("section", { class: "box" }, heatMap({ title: "How the curator plays with it", table: found.policy.curator })));
  }
  if (found.entries.length) {
    room.append(h("section", { class: "box" }, h("h2", {}, "Entries on the ledger"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entries on the ledger" }, h("table", {},
        h("thead", {}, h("tr", {}, ["Entry", "What", "Round", "Recorded", "Hash"].map((name, i) => h("th", { scope: "col", class: i === 0 || i === 2 ? "num" : "" }, name)))),
        h("tbody", {}, found.entries.map((one) => h("tr", {}, h("th", { scope: "row", class: "num" }, one.entry), h("td", {}, one.kind),
          h("td", { class: "num" }, one.round ?? ""), h("td", {}, when(one.recorded_at)), h("td", { class: "hash", title: one.hash }, one.hash.slice(0, 16), "…"))))))));
  }
  if (contract) {
    get(`${runPath(run)}/ledger`).then((ledger) => {
      const list = found.entries.map((one) => one.entry);
      recorded.replaceChildren(ledger.sound
        ? `Yes: ${list.length} entries of the ledger, from number ${list[0]} on, are about this contract. The whole ledger was checked just now, every hash and signature, and is sound. `
        : `It is recorded, but the ledger is not sound: ${ledger.problem} `, h("span", { class: `tag ${ledger.sound ? "sound" : "broken"}` }, ledger.sound ? "verified" : "not sound"));
    }).catch((problem) => { recorded.textContent = problem.message; });
  }
  return () => chart?.destroy();
}

// What the owner's records have cost over all jobs, as it was when this run ended.
function wallet(account, currency) {
  const known = (value, none) => (value === null ? none : short(value));
  const last = account.accounts.at(-1);
  return h("section", { class: "box", "aria-labelledby": "wallet" }, h("h2", { id: "wallet" }, "All jobs so far"),
    facts(["Jobs", String(account.accounts.reduce((sum, one) => sum + one.jobs, 0))], ["Rho", known(account.rho, "no bound")],
      ["Epsilon", known(account.epsilon, "no bound"), `at delta ${account.delta}`], ["Reserved", known(last.reserved, "no bound")],
      ["Left", known(last.left, "no limit")], ["Paid in all", money(account.paid_micro / 1e6, currency)]),
    account.accounts.length > 1 && h("p", {}, "The records have changed: each set has an account of its own. Rho is that of a record in all of them."),
    last.could_sell.length > 0 && h("p", {}, "What is left covers ", last.could_sell.map((one) => `${one.rounds} rounds at sigma ${one.sigma}`).join(", "), "."));
}
