// Small helpers to build pages, and to write numbers and times for people.

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node && !name.includes("-") && name !== "list" && name !== "for") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

export const say = (words) => { document.getElementById("said").textContent = words; };

const missing = "–";
export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return missing;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
export const money = (value, currency) => (value === null || value === undefined ? missing : `${number(value)} ${currency}`);
export function short(value, digits = 3) {
  if (value === null || value === undefined) return missing;
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}
export const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;
export const perCent = (value, digits = 1) =>
  value === null || value === undefined ? missing : `${number(value, digits)} %`;

export function when(text) {
  if (!text) return missing;
  const then = new Date(text);
  return then.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return "less than a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${number(seconds / 3600, 1)} h`;
}

export const tag = (state) => h("span", { class: `tag ${String(state).replace(/\s/g, "-")}` }, state);

export function problemBox(problem, again) {
  return h("div", { class: "box problem", role: "alert" },
    h("h2", {}, "That did not work"),
    h("p", {}, problem.message ?? String(problem)),
    again && h("button", { type: "button", class: "plain", onclick: again }, "Try again"));
}

export const loading = (words = "Loading …") => h("p", { class: "loading", role: "status" }, words);

export function empty(title, words, ...more) {
  return h("div", { class: "box empty" }, h("h2", {}, title), h("p", {}, words), ...more);
}

// Beside an accuracy that is not a mean over draws of the noise, or not of the whole training.
const mean = (many, one) => many === 1 ? `one ${one}` : many > 1 ? `mean of ${many} ${one}s` : "";
export const drawn = (one) => one.after_rounds ? `after round ${one.after_rounds}` : mean(one.seeds, "seed") || mean(one.draws, "draw");

// A table: columns are {key, name, cell, num, sort, wide}; the first column is the row's header.
export function table({ caption, columns, rows, sort, onsort, dense }) {
  const heads = columns.map((column) => h("th", {
    scope: "col",
    class: column.num ? "num" : "",
    "aria-sort": sort && sort.key === column.key ? (sort.down ? "descending" : "ascending") : null,
  }, column.sort && onsort
    ? h("button", { type: "button", "data-sort": column.key, onclick: () => onsort(column.key) }, column.name)
    : column.name));
  const lines = rows.map((row) => h("tr", {}, columns.map((column) => h(
    column.header ? "th" : "td",
    {
      scope: column.header ? "row" : null,
      class: [column.num && "num", column.wide && "wide"].filter(Boolean).join(" "),
      "data-name": column.name,
    },
    column.cell(row)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: dense ? "cards dense" : "cards" },
      h("caption", { class: "sr" }, caption),
      h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)));
}

export const facts = (...pairs) => h("dl", { class: "facts" },
  pairs.filter(Boolean).map(([name, value, ...small]) => h("div", {},
    h("dt", {}, name), h("dd", {}, value, small.filter(Boolean).map((one) => h("small", {}, one))))));

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
