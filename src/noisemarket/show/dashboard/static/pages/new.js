// The form that starts a run: data and owners, mechanism, budget, seed; all else under "More settings".

import { get, post, runPage, runPath } from "/static/api.js";
import { h, problemBox, say } from "/static/dom.js";

const SLOW = 4000; // milliseconds after which a start is explained

export async function show(room, { query }) {
  const preset = query.get("preset") ?? "market", own = query.get("data") ?? "";
  const form = await get(`form?${new URLSearchParams({ preset, data: own })}`);
  const [first, ...groups] = form.groups;
  const inputs = new Map();
  const trouble = h("div", {}), waiting = h("p", { class: "note", role: "status" });

  // A field with its label, what it means, and room for what is wrong with it.
  function field(key, label, input, help) {
    input.id = `f-${key}`;
    input.setAttribute("aria-describedby", `${input.id}-wrong ${input.id}-help`);
    const wrong = h("p", { id: `${input.id}-wrong`, class: "wrong", hidden: true });
    inputs.set(key, { input, wrong });
    return h("div", { class: "field" }, h("label", { for: input.id }, label), input, wrong, h("p", { id: `${input.id}-help` }, help));
  }

  // A setting of the scenario; "none" is an empty field.
  function setting(one) {
    const given = String(query.get(one.key) ?? one.value);
    const help = h("span", {});
    const input = one.kind === "choice"
      ? h("select", { onchange: () => explain() }, one.choices.map((choice) => h("option", { value: choice.value, selected: choice.value === given }, choice.name)))
      : h("input", { value: given === "none" ? "" : given, placeholder: one.value === "none" ? "none" : "", autocomplete: "off", inputMode: one.kind === "text" ? "text" : "decimal", maxLength: 60 });
    const explain = () => {
      const chosen = one.choices.find((choice) => choice.value === input.value)?.help;
      help.textContent = `${one.help}${chosen ? `; this one ${chosen}` : ""}`;
    };
    explain();
    const node = field(one.key, [one.name, one.symbol && h("span", { class: "symbol" }, ` ${one.symbol}`)], input, help);
    inputs.get(one.key).one = one;
    return node;
  }

  const choice = (pairs, chosen, more) => h("select", more ?? {}, pairs.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
  const choices = [...Object.entries(form.presets).map(([value, words]) => [`preset=${value}`, words]), ...form.own_data.map((one) => [`data=${encodeURIComponent(one)}`, `${one}, your own data`])];
  const data = choice(choices, own ? `data=${encodeURIComponent(own)}` : `preset=${preset}`, { onchange: () => { location.hash = `#/new?${data.value}`; } });
  const name = h("input", { maxLength: 100, autocomplete: "off", placeholder: "by time" });
  const kind = choice([["run", "run one market"], ["compare", "compare all mechanisms"]], query.get("command") ?? "run");
  const draws = choice([["0", "nothing"], ["1", "one draw of the noise"], ["3", "three draws of the noise"]], query.get("draws") ?? "1");
  const button = h("button", { type: "submit" }, "Start");
  const more = h("details", { class: "more", open: query.has("command") }, h("summary", {}, "More settings"),
    h("fieldset", {}, h("legend", {}, "This run"), h("div", { class: "fields" },
      field("name", "Name", name, "name of the run's folder"),
      field("command", "What to do", kind, "a market is negotiated, signed, trained and settled; a comparison only negotiates"),
      field("draws", "Compare with", draws, "no trade, no noise and other mechanisms, trained as well: each under this many draws of the noise"))),
    groups.map((group) => h("fieldset", {}, h("legend", {}, group.title), h("div", { class: "fields" }, group.fields.map(setting)))));

  room.replaceChildren(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, "New run"),
      h("p", { class: "lead" }, "These choices are enough. The run goes on when this page is closed."))),
    trouble,
    h("form", { class: "box", novalidate: true, onsubmit: submit },
      h("div", { class: "fields first" }, field("preset", "Data", data, form.named_owners ? "the owners are those of the data, each with its own records" : "the records are dealt out to the owners"),
        first.fields.filter((one) => !(form.named_owners && one.key === "population.owners")).map(setting)),
      more, h("div", { class: "tools", style: "margin:0" }, button, waiting)));

  function values() {
    const settings = {};
    for (const [key, { input, one }] of inputs) {
      if (!one) continue;
      const text = input.value.trim() || (one.value === "none" ? "none" : "");
      if (text === String(one.value)) continue;
      settings[key] = one.kind !== "choice" && text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
    }
    return settings;
  }

  // Each problem stands under its field; what belongs to none, above the form.
  function refuse(problem) {
    const fields = Object.entries(problem.fields ?? {}).filter(([key]) => inputs.has(key));
    for (const [key, words] of fields) {
      const { input, wrong } = inputs.get(key);
      input.setAttribute("aria-invalid", "true");
      wrong.textContent = words;
      wrong.hidden = false;
      if (more.contains(input)) more.open = true;
    }
    if (fields.length) {
      say(fields.length === 1 ? "One setting cannot be used." : `${fields.length} settings cannot be used.`);
      room.querySelector("[aria-invalid]").focus();
    } else {
      trouble.replaceChildren(problemBox(problem));
      trouble.scrollIntoView({ block: "center" });
    }
  }

  async function submit(event) {
    event.preventDefault();
    for (const { input, wrong } of inputs.values()) { input.removeAttribute("aria-invalid"); wrong.hidden = true; }
    trouble.replaceChildren();
    button.disabled = true;
    button.textContent = "Starting …";
    say("Starting the run.");
    const slow = setTimeout(() => { waiting.textContent = "Settings are checked. A job of a new shape measures its loss surface first, in about a minute."; }, SLOW);
    try {
      let started = await post("runs", { command: kind.value, name: name.value, preset, data: own, settings: values(), draws: Number(draws.value) });
      while (!started.begun && room.isConnected) started = await get(`${runPath(started.name)}/begun`);
      if (room.isConnected) location.hash = runPage(started.name);
    } catch (problem) {
      refuse(problem);
      button.disabled = false;
      button.textContent = "Start";
    }
    clearTimeout(slow);
    waiting.textContent = "";
  }
}
