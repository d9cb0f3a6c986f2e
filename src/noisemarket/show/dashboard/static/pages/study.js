// What several trainings came to: the jobs of a season, or the paper's claims with their curves.

import { get, runPage, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { empty, h, number, perCent, short, table } from "/static/dom.js";

const WHEEL = ["--market", "--none", "--clock", "--exact"];

// Fills the room, and again whenever `refresh` is called.
export function study(room, run, about) {
  let charts = [], shown = "";

  function draw(made) {
    charts.forEach((one) => one.destroy());
    charts = made.map(([chart]) => chart);
    room.append(h("div", { class: "cols" }, made.map(([chart]) => h("section", { class: "box" }, chart.node))));
    made.forEach(([chart, series, sentence]) => chart.update(series, sentence));
  }

  function season(jobs) {
    const x = jobs.map((_, i) => i + 1);
    const line = (label, key, colour, scale = 1) => ({ label, colour, x, y: jobs.map((one) => (one[key] === null ? NaN : scale * one[key])), dots: 6 });
    const chart = (title, y, ...series) => [new Chart({ title, x: "job", y, whole: true, zero: true, height: 220 }), series];
    room.append(h("section", { class: "box" }, h("h2", {}, "Jobs"), table({ caption: `Jobs of ${run}`, rows: jobs, columns: [
      { name: "Job", header: true, cell: (one) => h("a", { href: runPage(one.run) }, one.job) },
      { name: "Accuracy", num: true, cell: (one) => perCent(one.accuracy) },
      { name: "Owners", num: true, cell: (one) => number(one.owners, 0) },
      { name: "Sellers", num: true, cell: (one) => number(one.sellers, 0) },
      { name: "Run dry", num: true, cell: (one) => number(one.dry, 0) },
      { name: `Paid, ${about.currency}`, num: true, cell: (one) => number(one.paid) },
      { name: "Epsilon so far", num: true, cell: (one) => short(one.epsilon) },
      { name: "Budget left", num: true, cell: (one) => perCent(one.left_median === null ? null : 100 * one.left_median, 0) },
      { name: "Least left", num: true, cell: (one) => perCent(one.left_least === null ? null : 100 * one.left_least, 0) },
    ] }), jobs.filter((one) => one.problem).map((one) => h("p", { class: "note" }, `Job ${one.job}: ${one.problem}`))));
    const none = (key, words) => jobs.some((one) => one[key] > 0) ? undefined : words;
    draw([chart("Accuracy of the model", "test accuracy, %", line("accuracy", "accuracy", "--market")),
      [...chart("Money paid to owners", about.currency, line("paid", "paid", "--clock")), none("paid", "No owner was paid in any job.")],
      [...chart("Privacy budget left", "per cent", line("median owner", "left_median", "--exact", 100), line("least", "left_least", "--none", 100)),
        jobs.some((one) => one.left_median !== null) ? undefined : "No owner has set a budget."],
      [...chart("Owners", "owners", line("sell", "sellers", "--clock"), line("run dry", "dry", "--none")),
        none("sellers", none("dry", "No owner sold noise in any job, and none has run dry."))]]);
  }

  function reproduction(claims, curves) {
    room.append(h("section", { class: "box" }, h("h2", {}, "The paper's claims"), table({ caption: "The paper's claims", rows: claims, columns: [
      { name: "Claim", header: true, wide: true, cell: (one) => one.claim },
      { name: "Scenario", cell: (one) => one.scenario },
      { name: "Seen?", cell: (one) => h("strong", {}, one.seen) },
      { name: "Numbers", wide: true, cell: (one) => one.numbers }] }),
    h("p", { class: "note" }, "Scenario paper: the game as printed; market: as the paper's workflow means it, without learning.reopen. Yes, no and \"no, the opposite\" hold at 99.8 %; not shown: these seeds cannot tell; partly: the right way, but back by over 5 % of it; as played: with the moves that try things out; as signed: by the contracts.")));
    draw(curves.map((one) => [new Chart({ title: one.title, why: "Means over the seeds, with their confidence intervals.", x: "iteration", y: one.y }),
      one.curves.map((curve, i) => ({ label: curve.label, colour: WHEEL[i % WHEEL.length], dash: i > 0, x: curve.iteration, y: curve.mean, low: curve.low, high: curve.high, draws: 2 }))]));
  }

  async function refresh() {
    const found = await get(`${runPath(run)}/study`);
    if (JSON.stringify(found) === shown) return;
    shown = JSON.stringify(found);
    room.replaceChildren();
    if (found.claims?.length) reproduction(found.claims, found.curves);
    else if (found.jobs?.length) season(found.jobs);
    else room.append(empty("Nothing is finished yet", "What is shows up here by itself."));
  }

  return { refresh, destroy: () => charts.forEach((one) => one.destroy()) };
}
