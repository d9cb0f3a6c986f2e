// One owner, for that owner and to print: what did I sell, for what, the contract, the wallet, is it recorded.

import { get, runPage, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { facts, h, money, short, table, tag, when } from "/static/dom.js";

export async function show(room, { parts }) {
  const [run, owner] = parts;
  const found = await get(`${runPath(run)}/owner?name=${encodeURIComponent(owner)}`);
  const { row, contract } = found;
  const recorded = h("p", { class: "recorded" }, contract ? "Checking the ledger …" : found.unrecorded ?? "Not yet.");

  room.replaceChildren(
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/runs" }, "Runs"), " / ",
      h("a", { href: runPage(run) }, run), " / owner ", owner),
    h("div", { class: "head" }, h("h1", { class: "grow" }, `Owner ${owner}`), row.state && tag(row.state),
      h("button", { type: "button", class: "plain", onclick: () => print() }, "Print")),
    h("section", { class: "box" }, facts(["Saving: noise given up", short(row.saving), `adds sigma ${short(row.sigma)}`], ["Agreed payment", money(row.payment, found.currency)],
      row.paid !== null && ["Paid", money(row.paid, found.currency)], contract && ["Epsilon", contract.epsilon_agreed === null ? "no bound" : short(contract.epsilon_agreed), `at delta ${contract.delta}`],
      row.lowered && ["Its uploads lowered the test loss by", `${short(row.lowered[0])} ± ${short(row.lowered[1])}`, "to first order; pay does not depend on it"])),
    h("section", { class: "box", "aria-labelledby": "recorded" }, h("h2", { id: "recorded" }, "Is it recorded?"), recorded));

  const more = h("div", { class: "cols" });
  if (contract) room.append(more);
  if (contract || found.account) room.append(wallet(found.account, found.currency));
  if (contract) room.append(agreement(found.terms));
  let chart = null;
  if (found.trace?.round.length) {
    chart = new Chart({ title: "Privacy that was spent", why: "Epsilon of all updates up to each round, at the contract's delta.", x: "round", y: "epsilon so far", whole: true });
    more.append(h("section", { class: "box unprinted" }, chart.node));
    const known = found.trace.epsilon.map((one) => one ?? NaN);
    chart.update([{ label: "spent", colour: "--market", x: found.trace.round, y: known, dots: 5 },
      contract.epsilon_agreed !== null && { label: "agreed", colour: "--exact", dash: true, x: [found.trace.round[0], contract.rounds], y: [contract.epsilon_agreed, contract.epsilon_agreed] }]);
  }
  if (found.statement) {
    more.append(h("section", { class: "box" }, h("h2", {}, "Privacy statement"), h("ul", { class: "lines" }, found.statement.map((line) => h("li", {}, line)))));
  }
  if (found.entries.length) {
    room.append(h("section", { class: "box unprinted" }, h("h2", {}, "Entries on the ledger"), table({ caption: "Entries on the ledger", rows: found.entries, dense: true, columns: [
      { name: "Entry", header: true, cell: (one) => `${one.entry}: ${one.kind}` },
      { name: "Round", num: true, cell: (one) => one.round ?? "" },
      { name: "Recorded", cell: (one) => when(one.recorded_at) },
      { name: "Hash", wide: true, cell: (one) => h("span", { class: "hash" }, one.hash) }] })));
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

// The contract's terms and how it ended, as `noisemarket ledger show` prints them.
function agreement(terms) {
  return h("section", { class: "box", "aria-labelledby": "contract" }, h("h2", { id: "contract" }, "Contract"),
    h("div", { class: "cols" }, Object.entries(terms).map(([title, pairs]) => h("div", {}, h("h3", {}, title),
      h("dl", { class: "terms" }, Object.entries(pairs).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))))));
}

// What the owner's records have cost over all jobs, as it was when this run ended.
function wallet(account, currency) {
  const known = (value, none) => (value === null ? none : short(value));
  const box = (...parts) => h("section", { class: "box", "aria-labelledby": "wallet" }, h("h2", { id: "wallet" }, "Wallet: all jobs so far"), ...parts);
  if (!account?.accounts.length) return box(h("p", {}, "This run kept no wallet: its owners lived for one job only. With --owners-folder they stay, and so do their wallets."));
  const last = account.accounts.at(-1);
  return box(facts(["Jobs", String(account.accounts.reduce((sum, one) => sum + one.jobs, 0))], ["Rho", known(account.rho, "no bound")],
    ["Epsilon", known(account.epsilon, "no bound"), `at delta ${account.delta}`], ["Rho reserved", known(last.reserved, "no bound")],
    ["Rho left", known(last.left, "no limit")], ["Paid in all", Object.entries(account.money_micro).map(([unit, micro]) => money(micro / 1e6, unit)).join(", ") || money(0, currency)]),
  account.accounts.length > 1 && h("p", {}, "The records have changed: each set has an account of its own, within one budget. Rho is that of a record in all of them."),
  last.could_sell.length > 0 && h("p", {}, "What is left covers ", last.could_sell.map((one) => `${one.rounds} rounds at sigma ${one.sigma}`).join(", "), "."));
}
