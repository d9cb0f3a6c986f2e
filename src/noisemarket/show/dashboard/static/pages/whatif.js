// What if: drag a slider, and the clock, the equilibrium and the frontier answer.

import { get, post, runPage, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { h, loading, money, number, perCent, problemBox, say, short } from "/static/dom.js";

export async function show(room) {
  const { sliders } = await get("whatif/sliders?preset=market");
  const inputs = new Map();
  const trouble = h("div", {}), result = h("section", { class: "box", hidden: true }), out = h("div", {}, loading("Asking the mechanisms …"));
  let asking = null, waiting = false, timer = 0, drawn = null;

  function slider(one) {
    const id = `s-${one.key}`, shown = h("output", { for: id });
    const none = one.none && h("input", { id: `${id}-none`, type: "checkbox", checked: one.value === "none", onchange: () => { write(); later(); } });
    const start = one.value === "none" ? one.max / 2 : one.value;
    const input = h("input", { id, type: "range", min: one.min, max: one.max, step: one.step, "aria-describedby": `${id}-help`, oninput: () => { if (none) none.checked = false; write(); later(); } });
    input.value = start;
    const write = () => { shown.textContent = none?.checked ? "no limit" : short(Number(input.value), 4); input.setAttribute("aria-valuetext", shown.textContent); };
    write();
    inputs.set(one.key, { one, value: () => none?.checked ? "none" : Number(input.value), set: (value) => { if (none) none.checked = value === "none"; input.value = value === "none" ? start : value; write(); } });
    return h("div", { class: "slider" }, h("div", { class: "row" }, h("label", { for: id }, one.name), shown), input,
      none && h("div", { class: "check" }, none, h("label", { for: `${id}-none` }, "no limit")), h("p", { id: `${id}-help` }, one.help));
  }

  const train = h("button", { type: "button", onclick: start }, "Train the clock auction");
  const reset = h("button", { type: "button", class: "plain", onclick: () => { for (const { one, set } of inputs.values()) set(one.value); later(); } }, "Back to the preset");
  const frontier = new Chart({ title: "Accuracy over money", why: "What a budget buys: by the clock auction, which needs no private costs, and by a curator that knew every owner's cost. Predicted by the measured loss surface.", x: "paid in all", y: "accuracy, %", height: 300, money: true });
  const price = new Chart({ title: "The clock", why: "The price at each step, until the clock stops.", x: "step", y: "price", height: 220, whole: true });
  const game = new Chart({ title: "The exact equilibrium", why: "What each owner would sell if every pair played the paper's game perfectly, over the owner's privacy cost.", x: "privacy cost of the owner", y: "saving", height: 220 });

  room.replaceChildren(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, "What if"), h("p", { class: "lead" }, "Change the market and see the predicted result. Nothing is trained until you say so."))),
    h("div", { class: "split" },
      h("div", { class: "answer" }, trouble, result),
      h("section", { class: "box stick", "aria-label": "Settings" }, sliders.map(slider), h("div", { class: "tools", style: "margin:.4rem 0 0" }, train, reset)),
      out));

  const changed = () => Object.fromEntries([...inputs].filter(([, { one, value }]) => value() !== one.value).map(([key, { value }]) => [key, value()]));

  function later() { clearTimeout(timer); timer = setTimeout(ask, 40); }

  async function ask() {
    if (asking) { waiting = true; return; }
    asking = new AbortController();
    try {
      draw(await post("whatif", { preset: "market", settings: changed() }, asking.signal));
      trouble.replaceChildren();
    } catch (problem) {
      if (problem.name !== "AbortError") trouble.replaceChildren(problemBox(problem));
      if (!drawn) out.replaceChildren();
    }
    asking = null;
    if (waiting) { waiting = false; ask(); }
  }

  const rows = [["uniform", "no trade"], ["clock", "clock auction"], ["equilibrium", "exact equilibrium (no budget)"], ["best_portfolio", "with full knowledge"]];
  const body = h("tbody", {});

  function draw(found) {
    if (!drawn) {
      result.hidden = false;
      result.replaceChildren(h("h2", {}, "Predicted result"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What it would come to" }, h("table", { id: "answers" },
        h("caption", {}, `${found.equilibrium.cost.length} owners of the preset market; accuracy as the loss surface predicts it, gains over no trade; the floor binds all but the equilibrium`),
        h("thead", {}, h("tr", {}, ["By", "Sellers", `Paid, ${found.currency}`, "Accuracy", "Owners gain", "Curator gains"].map((name, i) => h("th", { scope: "col", class: i ? "num" : "" }, name)))), body)));
      out.replaceChildren(
        h("section", { class: "box" }, frontier.node),
        h("div", { class: "cols" }, h("section", { class: "box" }, price.node), h("section", { class: "box" }, game.node)));
    }
    drawn = found;
    body.replaceChildren(...rows.map(([key, name]) => {
      const one = found.answers[key];
      return h("tr", { "data-answer": key }, h("th", { scope: "row" }, name), [number(one.sellers, 0), number(one.paid), perCent(one.quality, 2), number(one.surplus), number(one.value)].map((value) => h("td", { class: "num" }, value)));
    }));
    const line = (key) => { const points = found.frontier.map((one) => one[key]).sort((a, b) => a.paid - b.paid).filter((one, i, all) => !i || one.paid > all[i - 1].paid); return { x: points.map((one) => one.paid), y: points.map((one) => one.quality) }; };
    const { clock, best_portfolio: best } = found.answers;
    frontier.update([
      { label: "with full knowledge", colour: "--best", show: false, ...line("best") },
      { label: "clock auction", colour: "--clock", show: false, ...line("clock") },
      { label: "clock auction now", colour: "--clock", line: false, dots: 14, x: [clock.paid], y: [clock.quality] },
      { label: "with full knowledge now", colour: "--best", line: false, dots: 14, x: [best.paid], y: [best.quality] }]);
    const last = found.clock.question.length;
    price.explain(last ? `The clock stopped after ${last === 1 ? "one step" : `${last} steps`}, at a price of ${money(found.clock.price[last - 1], found.currency)}; ${clock.sellers} owners sell.` : "It took no step: nothing is bought.");
    price.update([{ label: "price", colour: "--clock", steps: true, x: found.clock.question, y: found.clock.price }], "");
    game.update([{ label: "saving in equilibrium", colour: "--exact", line: false, dots: 6, show: false, x: found.equilibrium.cost, y: found.equilibrium.saving }]);
    say(`Clock auction: ${clock.sellers} owners sell for ${money(clock.paid, found.currency)}, accuracy ${perCent(clock.quality)}.`);
  }

  async function start() {
    train.disabled = true;
    train.textContent = "Starting …";
    try {
      let started = await post("runs", { preset: "market", settings: { ...changed(), mechanism: "clock" }, draws: 1 });
      while (!started.begun && room.isConnected) started = await get(`${runPath(started.name)}/begun`);
      if (room.isConnected) location.hash = runPage(started.name);
    } catch (problem) {
      trouble.replaceChildren(problemBox(problem));
      train.disabled = false;
      train.textContent = "Train the clock auction";
    }
  }

  await ask();
  return () => { clearTimeout(timer); asking?.abort(); [frontier, price, game].forEach((one) => one.destroy()); };
}
