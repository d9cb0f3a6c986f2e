// The form that starts a run: every setting explained, with the preset's value filled in.

import { get, post, runPage } from "/static/api.js";
import { h, problemBox, say } from "/static/dom.js";

export async function show(room, { query }) {
  const presets = ["market", "paper", "fars"], asked = query.get("preset");
  const preset = presets.includes(asked) ? asked : "market";
  const form = await get(`form?preset=${preset}`);
  const inputs = new Map();
  const trouble = h("div", {});
  const command = query.get("command") === "compare" ? "compare" : "run";

  function field(one) {
    const id = `f-${one.key}`;
    const given = query.get(one.key) ?? String(one.value);
    const input = one.kind === "choice"
      ? h("select", { id, "aria-describedby": `${id}-help` }, one.choices.map((choice) =>
        h("option", { value: choice.value, selected: choice.value === given }, choice.name)))
      : h("input", { id, value: given, "aria-describedby": `${id}-help`, autocomplete: "off", inputMode: one.kind === "text" ? "text" : "decimal", maxLength: 60 });
    inputs.set(one.key, { input, one });
    const limits = [one.min !== null && one.min !== undefined && `at least ${one.min}`, one.max !== null && one.max !== undefined && one.max < 1e6 && `at most ${one.max}`].filter(Boolean).join(", ");
    const help = h("p", { id: `${id}-help` });
    const explain = () => {
      const chosen = one.kind === "choice" && one.choices.find((choice) => choice.value === input.value)?.help;
      const words = one.symbol ? one.help.replace(`${one.symbol}: `, "") : one.help;
      help.textContent = `${words}${chosen ? `; this one ${chosen}` : ""}${limits ? ` (${limits})` : ""}`;
    };
    explain();
    input.addEventListener("change", explain);
    return h("div", { class: "field" },
      h("label", { for: id }, one.name, one.symbol && h("span", { class: "symbol" }, ` ${one.symbol}`)), input, help);
  }

  const name = h("input", { id: "run-name", maxLength: 100, autocomplete: "off", placeholder: "by time, if left empty", "aria-describedby": "run-name-help" });
  const draws = h("select", { id: "draws", "aria-describedby": "draws-help" },
    [["0", "nothing"], ["1", "one draw of noise"], ["3", "three draws of noise"]].map(([value, words]) => h("option", { value, selected: value === (query.get("draws") ?? "1") }, words)));
  const kind = h("select", { id: "command", "aria-describedby": "command-help" },
    h("option", { value: "run", selected: command === "run" }, "run one market"),
    h("option", { value: "compare", selected: command === "compare" }, "compare all mechanisms"));
  const button = h("button", { type: "submit" }, "Start");

  room.replaceChildren(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, "New run"),
      h("p", { class: "lead" }, "The values are those of the preset. The run goes on when this page is closed.")),
      h("div", {}, h("label", { class: "sr", for: "preset" }, "Preset"), h("select", { id: "preset", onchange: (event) => { location.hash = `#/new?preset=${event.target.value}`; } },
        presets.map((one) => h("option", { value: one, selected: preset === one }, `preset: ${one}`))))),
    trouble,
    h("form", { class: "box", novalidate: true, onsubmit: submit },
      h("fieldset", {}, h("legend", {}, "This run"), h("div", { class: "fields" },
        h("div", { class: "field" }, h("label", { for: "run-name" }, "Name"), name, h("p", { id: "run-name-help" }, "name of the run's folder")),
        h("div", { class: "field" }, h("label", { for: "command" }, "What to do"), kind, h("p", { id: "command-help" }, "a market is negotiated, signed, trained and settled; a comparison only negotiates")),
        h("div", { class: "field" }, h("label", { for: "draws" }, "Compare with"), draws, h("p", { id: "draws-help" }, "no trade, no noise and other mechanisms are trained as well, each under this many draws of the noise")))),
      form.groups.map((group) => h("fieldset", {}, h("legend", {}, group.title), h("div", { class: "fields" }, group.fields.map(field)))),
      button));

  function values() {
    const settings = {};
    for (const [key, { input, one }] of inputs) {
      const text = input.value.trim();
      if (text === String(one.value)) continue;
      settings[key] = one.kind !== "choice" && text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
    }
    return settings;
  }

  async function submit(event) {
    event.preventDefault();
    for (const { input } of inputs.values()) input.removeAttribute("aria-invalid");
    name.removeAttribute("aria-invalid");
    trouble.replaceChildren();
    button.disabled = true;
    button.textContent = "Starting …";
    say("Starting the run.");
    try {
      const started = await post("runs", { command: kind.value, name: name.value, preset, settings: values(), draws: Number(draws.value) });
      location.hash = runPage(started.name);
    } catch (problem) {
      trouble.replaceChildren(problemBox(problem));
      const wrong = [...inputs].find(([key]) => problem.message.startsWith(key) || problem.message.includes(`settings.${key}`));
      const target = wrong ? wrong[1].input : problem.message.startsWith("name") ? name : null;
      target?.setAttribute("aria-invalid", "true");
      (target ?? trouble).scrollIntoView({ block: "center" });
      target?.focus();
      button.disabled = false;
      button.textContent = "Start";
    }
  }
}
