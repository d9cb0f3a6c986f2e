// Runs and mechanisms side by side: accuracy over money, owners' surplus, noise sold.

import { comparing, get, runPage } from "/static/api.js";
import { Chart, bars } from "/static/charts.js";
import { drawn, empty, h, number, perCent, short, table } from "/static/dom.js";

export async function show(room, { query }) {
  const all = (await get("runs")).filter((run) => ["run", "negotiate", "compare"].includes(run.kind));
  const wanted = query.getAll("run").filter((name) => all.some((run) => run.name === name));
  const chosen = new Set(wanted);
  const button = h("button", { type: "button", disabled: !chosen.size, onclick: () => { location.hash = `#/${comparing(chosen)}`; } }, "Compare these");
  const picker = h("details", { class: "box", open: !wanted.length }, h("summary", {}, h("strong", {}, wanted.length ? (wanted.length === 1 ? "One run chosen" : `${wanted.length} runs chosen`) : "Choose runs")),
    h("div", { class: "fields", style: "margin-top:.8rem" }, all.map((run, i) => h("div", { class: "tools", style: "margin:0" }, h("div", { class: "check" },
      h("input", { id: `c${i}`, type: "checkbox", checked: chosen.has(run.name), onchange: (event) => { if (event.target.checked) chosen.add(run.name); else chosen.delete(run.name); button.disabled = !chosen.size; } }),
      h("label", { for: `c${i}` }, `${run.name} (${run.state})`))))),
    h("p", { style: "margin:.8rem 0 0" }, button));
  room.replaceChildren(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, "Compare"), h("p", { class: "lead" }, "Accuracy over money, owners' surplus and noise sold, side by side.")),
    h("a", { class: "button plain", href: "#/new?command=compare" }, "Compare all mechanisms")));
  if (!all.length) {
    room.append(empty("Nothing to compare yet", "Start a comparison of all mechanisms on one population, or some runs to choose from.",
      h("a", { class: "button", href: "#/new?command=compare" }, "Compare all mechanisms")));
    return null;
  }
  room.append(picker);
  if (!wanted.length) return null;
  const { rows, differ } = await get(comparing(wanted));
  if (!rows.length) {
    room.append(empty("No results yet", "These runs have nothing to compare so far. Come back when they are complete."));
    return null;
  }
  const many = wanted.length > 1;
  const label = (row) => many ? `${row.run} · ${row.name}` : row.name;
  const currency = differ.includes("currency") ? "" : `, ${rows[0].currency}`;
  if (differ.length) {
    const list = differ.length > 1 ? `${differ.slice(0, -1).join(", ")} and ${differ.at(-1)}` : differ[0];
    room.append(h("p", { class: "box warn", role: "note" }, `These runs differ in ${list}, not only in the mechanism: differences in accuracy and money may come from that.`));
  }
  const frontier = new Chart({ title: "Accuracy over money", why: "Up and to the left is better. Trained accuracy where a run trained; otherwise what the loss surface predicts.", x: `paid in all${currency}`, y: "accuracy, %", height: 340, money: true });
  room.append(h("section", { class: "box" }, frontier.node));
  const places = new Map();
  rows.forEach((row, i) => {
    if (row.accuracy === null || row.paid === null) return;
    const key = `${row.paid.toFixed(2)} ${row.accuracy.toFixed(2)}`;
    if (!places.has(key)) places.set(key, { names: [], row, i });
    places.get(key).names.push(label(row));
  });
  frontier.update([...places.values()].map(({ names: all, row, i }) => ({ names: together(all), row, i })).map(({ names, row, i }) => ({
    label: names.join(", "), show: false, text: names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", "),
    colour: tint(i), line: false, dots: 13, x: [row.paid], y: [row.accuracy] })),
    places.size === 1 ? [...places.values()].map(({ names, row }) => `${together(names).join(", ")}: ${row.measured ? "" : "≈ "}${perCent(row.accuracy)} for ${number(row.paid)} ${row.currency}. Choose another run to compare it with.`)[0] : undefined);
  const list = (key) => rows.map((row, i) => ({ label: label(row), value: row[key], colour: tint(i) }));
  const figures = [["surplus", "Owners' surplus: what owners gain over no trade", number], ["privacy_sold", "Saving: noise given up, mean per owner", short]]
    .filter(([key]) => rows.some((row) => row[key] !== null));
  room.append(h("div", { class: "cols" }, figures.map(([key, title, write]) => h("section", { class: "box" }, bars(title, list(key), (v) => write(v))))));
  room.append(h("section", { class: "box" }, h("h2", {}, "The figures"), table({
    caption: "Runs side by side", rows, dense: true, columns: [
      { name: "Mechanism and run", header: true, wide: true, cell: (row) => [row.name, h("small", {}, h("a", { href: runPage(row.run) }, row.run))] },
      ...differ.map((key) => ({ name: key[0].toUpperCase() + key.slice(1), num: typeof rows[0][key] === "number", cell: (row) => row[key] ?? "–" })),
      { name: "Accuracy", num: true, cell: (row) => row.accuracy === null ? "–" : [`${row.measured ? "" : "≈ "}${perCent(row.accuracy)}`, h("small", {}, row.measured ? drawn(row) : "predicted")] },
      { name: "No trade", num: true, cell: (row) => perCent(row.no_trade_accuracy) },
      { name: `Paid${currency}`, num: true, cell: (row) => [number(row.paid), row.agreed && row.paid !== null && h("small", {}, "agreed")] },
      { name: "Sellers", num: true, cell: (row) => short(row.sellers) },
      { name: "Value, predicted", num: true, cell: (row) => number(row.predicted_value) },
      { name: "Value, trained", num: true, cell: (row) => number(row.trained_value) },
      { name: "Surplus", num: true, cell: (row) => number(row.surplus) },
      { name: "Mean saving", num: true, cell: (row) => short(row.privacy_sold) },
      { name: "Epsilon, most", num: true, cell: (row) => row.epsilon ? (row.epsilon.max === null ? "no bound" : short(row.epsilon.max)) : "–" },
    ].filter((column) => rows.some((row) => column.cell(row) !== "–")) }), h("p", { class: "note" }, "≈ predicted by the loss surface, not trained. Value: the curator's gain over no trade, as the loss surface predicts it and by trained accuracy less payments.")));
  return () => frontier.destroy();
}

// Names at one point; those that differ by their budget alone become one.
function together(names) {
  const found = new Map();
  for (const name of names) {
    const [who, most] = name.split(", at most ");
    found.set(who, [...(found.get(who) ?? []), ...(most ? [most] : [])]);
  }
  return [...found].map(([who, most]) => (most.length ? `${who}, at most ${most.join(" or ")}` : who));
}

// A colour that can be told from the others in light and in dark.
const WHEEL = ["--market", "--none", "--clock", "--exact", "--best", "--bad", "--good", "--full", "--busy"];
const tint = (i) => WHEEL[i % WHEEL.length];
