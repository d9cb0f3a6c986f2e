// How the negotiation goes: the game that is learned with the exact equilibrium, or the price of the clock.

import { get, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { facts, h, money, short } from "/static/dom.js";

const LEARNED = [["saving", "Saving over the iterations", "mean saving"], ["payment", "Payment over the iterations", "mean payment"]];

// Fills the room: `live` while owners are playing, `finish` when all have played.
export function game(room, run, currency) {
  let asked = null, level = null, charts = null;

  const exact = () => (asked ??= get(`${runPath(run)}/curves`).then((found) => { level = found.equilibrium; }).catch(() => {}));

  function draw(points, why) {
    const x = points.iteration;
    if (!x.length) return;
    charts ??= LEARNED.map(([name, title, y]) => ({ name, chart: new Chart({ title, x: "iteration", y: name === "payment" ? `${y}, ${currency}` : y }) }));
    for (const { name, chart } of charts) {
      if (!chart.node.isConnected) room.append(h("section", { class: "box" }, chart.node));
      chart.explain(why);
      chart.update([
        { label: "learned", colour: "--market", x, y: points[name] },
        level && { label: "exact equilibrium", colour: "--exact", dash: true, x: [x[0], x[x.length - 1]], y: [level[name], level[name]] }]);
    }
  }

  const dashed = (of) => (level ? `; dashed is the exact equilibrium of this ${of}` : "");

  async function live(points, done, total) {
    await exact();
    draw(points, `Means over the ${done} of ${total} owners that have played so far${dashed("whole game")}.`);
  }

  async function finish() {
    let found;
    try { found = await get(`${runPath(run)}/curves`); } catch (problem) {
      room.replaceChildren(h("section", { class: "box" }, h("h2", {}, "How the negotiation went"), h("p", { class: "note" }, problem.message)));
      return;
    }
    level = found.equilibrium;
    if (found.trace) draw(found.trace, `Means over all owners${dashed("game")}.`);
    else if (found.clock) clock(found.clock);
    else if (found.equilibrium) {
      room.replaceChildren(h("section", { class: "box" }, h("h2", {}, "The exact equilibrium of this game"),
        facts(["Mean saving", short(found.equilibrium.saving)], ["Mean payment", money(found.equilibrium.payment, currency)])));
    }
  }

  function clock({ question: x, price, staying }) {
    if (x.length < 2) {
      const words = x.length ? `The clock stopped after one step, at a price of ${money(price[0], currency)}; owners that stayed: ${staying[0]}.` : "It took no step: nothing is bought.";
      room.replaceChildren(h("section", { class: "box" }, h("h2", {}, "The clock"), h("p", {}, words)));
      return;
    }
    charts ??= [["The price of the clock", "The price falls until the owners that are left are worth it.", `price, ${currency}`],
      ["Owners that stay", "Who says no once is out.", "owners"]].map(([title, why, y]) => ({ chart: new Chart({ title, why, x: "step", y, whole: true }) }));
    room.replaceChildren(...charts.map(({ chart }) => h("section", { class: "box" }, chart.node)));
    charts[0].chart.update([{ label: "price", colour: "--clock", steps: true, x, y: price }]);
    charts[1].chart.update([{ label: "owners that stay", colour: "--market", steps: true, x, y: staying }]);
  }

  return { live, finish, destroy: () => charts?.forEach(({ chart }) => chart.destroy()) };
}
