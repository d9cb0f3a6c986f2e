// One run: live while it goes on, with its curves, its contracts and its ledger.

import { comparing, follow, get, post, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { drawn, duration, empty, facts, h, number, perCent, problemBox, say, sentence, tag, when } from "/static/dom.js";
import { contracts } from "/static/pages/contracts.js";
import { game } from "/static/pages/game.js";
import { study } from "/static/pages/study.js";

const STEPS = { starting: "Starting workers", negotiating: "Negotiating", signing: "Signing contracts", training: "Training under contract", settled: "Verified and settled", comparing: "Training what the market is compared with" };
const UNITS = { negotiating: "owners", signing: "contracts" };
const COLOURS = { market: "--market", uniform_dp: "--none", no_dp: "--full", dypp: "--exact", best_portfolio: "--best", clock: "--clock" };
const WHY = "Test accuracy of the model that is trained under the contracts.";
const OFTEN = 2000; // milliseconds between two looks at contracts that change all the time

export async function show(room, { parts }) {
  const run = parts[0] ?? "";
  const about = await get(runPath(run));
  if (about.kind === "compare" && about.state !== "running") { location.replace(`#/${comparing([run])}`); return null; }
  const market = about.kind === "run", many = ["season", "reproduction"].includes(about.kind);
  const mechanisms = Object.fromEntries((await get("about")).mechanisms.map((one) => [one.mechanism, one]));
  const badge = h("span", {}, tag(about.state)), buttons = h("div", {}), trouble = h("div", {});

  room.replaceChildren(
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/runs" }, "Runs"), " / ", run),
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, run),
      h("p", { class: "lead" }, [mechanisms[about.mechanism]?.name ?? about.mechanism, about.preset && `data ${about.data}`, about.owners && `${number(about.owners, 0)} owners`, typeof about.seed === "number" && `seed ${about.seed}`, `started ${when(about.started)}`].filter(Boolean).join(" · "))),
      badge, buttons),
    !about.private && (market || about.kind === "season") ? h("p", { class: "box warn", role: "note" }, "NOT PRIVATE: noise from a fixed seed.") : "",
    trouble);
  if (many) return several();
  if (!market && about.kind !== "negotiate") return other();

  const live = h("section", { class: "box", "aria-label": "Progress", hidden: true });
  const figures = h("section", { class: "box", "aria-label": "Result" });
  const curves = h("div", { class: "cols" });
  const table = h("section", { class: "box contracts", "aria-labelledby": "contracts-title" });
  const ledger = h("section", { class: "box", "aria-label": "Ledger", hidden: true });
  const bar = h("div", { class: "bar", role: "progressbar", "aria-label": "Progress of this step", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i", {}));
  const step = h("h2", {}), left = h("p", { class: "note" }), notes = h("div", {});
  live.append(step, bar, left, notes);
  const accuracy = market ? new Chart({ title: "Accuracy over the rounds", why: WHY, x: "round", y: "test accuracy, %", height: 300, whole: true, ends: true }) : null;
  room.append(live, figures, ...(accuracy ? [h("section", { class: "box" }, accuracy.node)] : []), curves, table, ledger);
  const list = contracts(table, run, about), play = game(curves, run, about.currency);
  let previous = null, played = "", contractsAt = "", later = 0, looked = 0;

  function draw(state) {
    const running = state.state === "running";
    badge.replaceChildren(tag(state.state));
    act(state.state);
    progress(state, running);
    if (market) results(state, running);
    const now = `${state.state} ${state.step}`;
    if (now !== previous) { say(`${run}: ${running ? STEPS[state.step] : state.state}.`); previous = now; }
    negotiation(state, running);
    const at = [state.signed, state.contracts_paid, state.contracts_broken, state.state, market ? "" : state.progress.done].join();
    if (at !== contractsAt) {
      contractsAt = at;
      clearTimeout(later);
      later = setTimeout(() => { looked = Date.now(); list.refresh(); }, running ? Math.max(0, looked + OFTEN - Date.now()) : 0);
      if (!running) { if (market) checkLedger(); else result(); }
    }
  }

  function progress(state, running) {
    const { done, total, seconds_left: seconds } = state.progress;
    const share = total ? Math.min(100, Math.round((100 * done) / total)) : 0;
    live.hidden = state.state === "complete" && !state.notes.length;
    step.textContent = running ? (state.step === "negotiating" && !total ? "Preparing data and owners" : STEPS[state.step]) : state.state === "complete" ? "Complete" : "Stopped";
    bar.hidden = state.state === "complete";
    bar.classList.toggle("unknown", running && !total);
    bar.firstElementChild.style.width = running && !total ? "" : `${share}%`;
    if (total) bar.setAttribute("aria-valuenow", String(share)); else bar.removeAttribute("aria-valuenow");
    const count = total ? `${number(done, 0)} of ${number(total, 0)} ${UNITS[state.step] ?? "rounds"}` : "";
    const rest = running && seconds !== null && done < total ? `${seconds < 1 ? "" : "about "}${duration(seconds)} left in this step` : running && done && done === total ? "" : running && total ? "estimating the time left" : "";
    const after = running && market && state.compares && state.step !== "comparing" ? "the comparison is trained after that" : "";
    left.textContent = state.problem && !running ? `${sentence(state.problem.replace(/^\w+: |; continue with --resume .*|\.$/g, ""))}. What was finished is kept${about.resumable ? ": resume it to go on" : ""}.` : [count, rest, after].filter(Boolean).join(" · ");
    notes.replaceChildren(state.notes.length ? h("details", { open: state.notes.length < 4 }, h("summary", {}, state.notes.length === 1 ? "One remark" : `${state.notes.length} remarks`),
      h("ul", { class: "lines" }, state.notes.map((note) => h("li", {}, note)))) : "");
  }

  function results(state, running) {
    accuracy.update(state.accuracy.map((one) => ({
      label: one.name === "market" ? mechanisms[about.mechanism]?.name ?? about.mechanism : one.label, colour: COLOURS[one.name] ?? mechanisms[one.name]?.colour ?? "--dim", x: one.round, y: one.mean, low: one.low, high: one.high, draws: one.draws,
      dash: one.name !== "market" && one.name !== "uniform_dp" && one.name !== "no_dp",
    })), state.accuracy.length ? undefined : "No round is finished yet.");
    const draws = Math.max(0, ...state.accuracy.map((one) => one.draws));
    const beside = state.accuracy.filter((one) => one.name !== "market").map((one) => one.label).join(", ");
    accuracy.explain(`${WHY} ${beside && `Beside it: ${beside}. `}${draws > 1 ? `Means of up to ${draws} draws of the noise, with the lowest and the highest.` : draws ? "Each curve is a single draw of the noise." : ""}`);
    const named = Object.fromEntries(state.accuracy.map((one) => [one.name, one.mean[one.mean.length - 1]]));
    const own = state.accuracy.find((one) => one.name === "market");
    figures.replaceChildren(facts(
      ["Accuracy", perCent(named.market ?? null), own && drawn(own), named.uniform_dp !== undefined && !running && `no trade: ${perCent(named.uniform_dp)}`],
      ["Round", state.rounds ? `${state.round} of ${state.rounds}` : "–"],
      ["Contracts signed", number(state.signed, 0), state.agreed !== null && `sellers: ${number(state.agreed, 0)}`],
      [`Paid, ${about.currency}`, number(state.paid), state.contracts_paid ? `contracts kept: ${number(state.contracts_paid, 0)}` : "when the job is settled"],
      ["Broken", number(state.contracts_broken, 0), state.left_out ? `left out: ${number(state.left_out, 0)}` : ""]));
  }

  // What a negotiation alone came to.
  async function result() {
    let one = about;
    try { one = await get(runPath(run)); } catch { /* what was known stays */ }
    figures.replaceChildren(facts(["Accuracy, predicted", one.quality === null ? "–" : `≈ ${perCent(one.quality)}`], [`Agreed, ${about.currency}`, number(one.paid), "nothing is paid: a negotiation alone"], ["Owners", number(one.owners, 0)]));
  }

  function negotiation(state, running) {
    const over = state.agreed !== null || (!market && !running);
    if (over && played !== "over") { played = "over"; play.finish(); }
    else if (!over && state.learned) play.live(state.learned, state.progress.done, state.progress.total);
    figures.hidden = !market && running;
  }

  function act(state) {
    const wanted = state === "running" ? "Stop" : state === "incomplete" && about.resumable ? "Resume" : "";
    if (buttons.dataset.wanted === wanted) return;
    buttons.dataset.wanted = wanted;
    buttons.hidden = !wanted;
    if (!wanted) { buttons.replaceChildren(); return; }
    const button = h("button", { type: "button", class: wanted === "Stop" ? "plain" : "", onclick: async () => {
      button.disabled = true;
      button.textContent = wanted === "Stop" ? "Stopping …" : "Resuming …";
      trouble.replaceChildren();
      try {
        await post(`${runPath(run)}/${wanted.toLowerCase()}`);
        say(wanted === "Stop" ? "The run stops as soon as it can." : "The run goes on.");
      } catch (problem) {
        trouble.replaceChildren(problemBox(problem));
        button.disabled = false;
        button.textContent = wanted;
      }
    } }, wanted);
    buttons.replaceChildren(button);
  }

  // A season or a reproduction, which has no contracts of its own.
  function several() {
    const body = h("div", {}), parts = study(body, run, about);
    room.append(body);
    const refresh = () => parts.refresh().catch((problem) => body.replaceChildren(problemBox(problem)));
    const timer = setInterval(() => { if (badge.textContent === "running" && !document.hidden) refresh(); }, OFTEN);
    const quit = watch(refresh);
    return () => { quit(); clearInterval(timer); parts.destroy(); };
  }

  // A run of another command, or a comparison that goes on; when its state changes, the page is shown anew.
  function other() {
    room.append(about.state === "running" ? empty("Still running", "This page changes by itself when the run ends.")
      : empty("Nothing to show here", `${about.kind === "other" ? "Its results" : `The results of noisemarket ${about.kind}`} are in the folder itself.`));
    return watch((state) => { if (state.state !== about.state) dispatchEvent(new Event("hashchange")); });
  }

  function watch(then) {
    return follow(run, {
      state: (state) => { trouble.querySelector(".lost")?.remove(); badge.replaceChildren(tag(state.state)); act(state.state); then(state); },
      lost: silent,
    });
  }

  async function checkLedger() {
    try {
      if (!(await get(runPath(run))).ledger) return;
      ledger.hidden = false;
      const found = await get(`${runPath(run)}/ledger`);
      ledger.replaceChildren(h("div", { class: "head", style: "margin:0" }, h("h2", { style: "margin:0" }, "Ledger"),
        h("span", { class: `tag ${found.sound ? "sound" : "broken"}` }, found.sound ? "verified: sound" : "not sound")),
        found.sound ? h("p", {}, `Every hash, signature and payment of its ${number(found.entries, 0)} entries was checked just now.${found.noted_head === found.head ? " Its head is the one that the run noted." : ""}`)
          : h("p", {}, sentence(found.problem)),
        ...(found.head ? [h("p", { class: "hash" }, found.head)] : []));
    } catch (problem) { ledger.replaceChildren(h("h2", {}, "Ledger"), h("p", {}, problem.message)); }
  }

  // Why there is no news: said until there is.
  function silent(words) {
    const box = trouble.querySelector(".lost") ?? trouble.appendChild(h("p", { class: "box lost", role: "status" }));
    if (box.textContent !== words) box.textContent = words;
  }

  const quit = follow(run, {
    state: (state) => { trouble.querySelector(".lost")?.remove(); draw(state); },
    lost: silent,
  });
  return () => { quit(); clearTimeout(later); accuracy?.destroy(); play.destroy(); };
}
