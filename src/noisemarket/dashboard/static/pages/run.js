// One run: live while it goes on, with its curves, its contracts and its ledger.

import { follow, get, post, runPath } from "/static/api.js";
import { Chart } from "/static/charts.js";
import { duration, empty, facts, h, number, perCent, problemBox, say, short, tag, when } from "/static/dom.js";
import { contracts } from "/static/pages/contracts.js";

const STEPS = { negotiating: "Negotiating", signing: "Signing contracts", training: "Training under contract", settled: "Verified and settled", comparing: "Training what the market is compared with" };
const UNITS = { negotiating: "owners", signing: "contracts", training: "rounds", settled: "rounds", comparing: "rounds" };
const COLOURS = { market: "--market", uniform_dp: "--none", no_dp: "--full", dypp: "--exact", best_portfolio: "--best", clock: "--clock" };

export async function show(room, { parts }) {
  const run = parts[0] ?? "";
  const about = await get(runPath(run));
  const mechanisms = Object.fromEntries((await get("about")).mechanisms.map((one) => [one.mechanism, one]));
  const badge = h("span", {}, tag(about.state));
  const buttons = h("div", {});
  const trouble = h("div", {});
  const live = h("section", { class: "box", "aria-label": "Progress" });
  const figures = h("section", { class: "box", "aria-label": "Result" });
  const curves = h("div", { class: "cols" });
  const table = h("section", { class: "box contracts", "aria-labelledby": "contracts-title" });
  const ledger = h("section", { class: "box", "aria-label": "Ledger", hidden: true });

  room.replaceChildren(
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/runs" }, "Runs"), " / ", run),
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, run),
      h("p", { class: "lead" }, [mechanisms[about.mechanism]?.name ?? about.mechanism, about.preset && `preset ${about.preset}`, about.owners && `${number(about.owners, 0)} owners`, about.seed !== null && `seed ${about.seed}`, `started ${when(about.started)}`].filter(Boolean).join(" · "))),
      badge, buttons),
    trouble);

  if (about.kind === "compare") { location.replace(`#/compare?run=${encodeURIComponent(run)}`); return null; }
  if (about.kind !== "run") {
    await finished(about);
    return null;
  }

  let last = null, previous = null, curvesAt = "", contractsAt = "";
  const bar = h("div", { class: "bar", role: "progressbar", "aria-label": "Progress of this step", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i", {}));
  const step = h("h2", {}), left = h("p", { class: "note" }), notes = h("div", {});
  live.append(step, bar, left, notes);
  const accuracy = new Chart({ title: "Accuracy over the rounds", why: "Test accuracy of the model that is trained under the contracts, beside the same job without a trade, without noise, and by other mechanisms.", x: "round", y: "test accuracy, %", height: 300, whole: true });
  room.append(live, figures, h("section", { class: "box" }, accuracy.node), curves, table, ledger);
  const list = contracts(table, run, about);

  function draw(state) {
    last = state;
    badge.replaceChildren(tag(state.state));
    act(state);
    const { done, total, seconds_left: seconds } = state.progress;
    const running = state.state === "running";
    const share = total ? Math.min(100, Math.round((100 * done) / total)) : 0;
    live.hidden = state.state === "complete" && !state.notes.length;
    step.textContent = running ? STEPS[state.step] : state.state === "complete" ? "Complete" : "Stopped";
    bar.hidden = state.state === "complete";
    bar.classList.toggle("unknown", running && !total);
    bar.firstElementChild.style.width = running && !total ? "" : `${share}%`;
    bar.setAttribute("aria-valuenow", String(share));
    const count = total ? `${number(done, 0)} of ${number(total, 0)} ${UNITS[state.step]}` : "";
    const rest = running && seconds !== null ? `about ${duration(seconds)} left in this step` : running && total ? "estimating the time left" : "";
    const after = running && state.compares && state.step !== "comparing" ? "the comparison is trained after that" : "";
    left.textContent = state.problem && !running ? `${state.problem} What was finished is kept: resume it to go on.` : [count, rest, after].filter(Boolean).join(" · ");
    notes.replaceChildren(state.notes.length ? h("details", { open: state.notes.length < 4 }, h("summary", {}, state.notes.length === 1 ? "One remark" : `${state.notes.length} remarks`),
      h("ul", { class: "lines" }, state.notes.map((note) => h("li", {}, note)))) : "");
    accuracy.update(state.accuracy.map((one) => ({
      label: one.label, colour: COLOURS[one.name] ?? mechanisms[one.name]?.colour ?? "--dim", x: one.round, y: one.mean, low: one.low, high: one.high, draws: one.draws,
      dash: one.name !== "market" && one.name !== "uniform_dp" && one.name !== "no_dp",
    })));
    const named = Object.fromEntries(state.accuracy.map((one) => [one.name, one.mean[one.mean.length - 1]]));
    figures.replaceChildren(facts(
      ["Accuracy", perCent(named.market ?? null), [named.uniform_dp !== undefined && `${perCent(named.uniform_dp)} without a trade`].filter(Boolean).join("")],
      ["Round", state.rounds ? `${state.round} of ${state.rounds}` : "–"],
      ["Contracts signed", number(state.signed, 0), state.agreed !== null ? `${state.agreed} of them trade noise` : ""],
      ["Paid", number(state.paid), state.contracts_paid ? `${number(state.contracts_paid, 0)} contracts kept` : "when the job is settled"],
      ["Broken", number(state.contracts_broken, 0), state.left_out ? `${state.left_out} owners left out` : ""]));
    const now = `${state.state} ${state.step}`;
    if (now !== previous) { say(`${run}: ${running ? STEPS[state.step] : state.state}.`); previous = now; }
    const played = state.agreed !== null ? "played" : "";
    if (played && curvesAt !== played) { curvesAt = played; negotiated(); }
    const at = [state.signed, state.contracts_paid, state.contracts_broken, state.state].join();
    if (at !== contractsAt) { contractsAt = at; list.refresh(); if (state.state !== "running") checkLedger(); }
  }

  function act(state) {
    const wanted = state.state === "running" ? "Stop" : state.state === "incomplete" ? "Resume" : "";
    if (buttons.dataset.wanted === wanted) return;
    buttons.dataset.wanted = wanted;
    if (!wanted) { buttons.replaceChildren(); return; }
    const button = h("button", { type: "button", class: wanted === "Stop" ? "plain" : "", onclick: async () => {
      button.disabled = true;
      button.textContent = wanted === "Stop" ? "Stopping …" : "Resuming …";
      trouble.replaceChildren();
      try {
        await post(`${runPath(run)}/${wanted.toLowerCase()}`);
        say(wanted === "Stop" ? "The run will stop after this round." : "The run goes on.");
      } catch (problem) {
        trouble.replaceChildren(problemBox(problem));
        button.disabled = false;
        button.textContent = wanted;
      }
    } }, wanted);
    buttons.replaceChildren(button);
  }

  async function negotiated() {
    let found;
    try { found = await get(`${runPath(run)}/curves`); } catch (problem) { curves.append(h("section", { class: "box" }, h("h2", {}, "How the negotiation went"), h("p", { class: "note" }, problem.message))); return; }
    for (const node of played(found)) curves.append(node);
  }

  async function checkLedger() {
    if (!(await get(runPath(run))).ledger) return;
    ledger.hidden = false;
    try {
      const found = await get(`${runPath(run)}/ledger`);
      ledger.replaceChildren(h("div", { class: "head", style: "margin:0" }, h("h2", { style: "margin:0" }, "Ledger"),
        h("span", { class: `tag ${found.sound ? "sound" : "broken"}` }, found.sound ? "verified: sound" : "not sound")),
        found.sound ? h("p", {}, `Every hash, signature and payment of its ${number(found.entries, 0)} entries was checked just now.${found.noted_head === found.head ? " Its head is the one that the run noted." : ""}`)
          : h("p", {}, found.problem),
        found.head && h("p", { class: "hash" }, found.head));
    } catch (problem) { ledger.replaceChildren(h("h2", {}, "Ledger"), h("p", {}, problem.message)); }
  }

  async function finished(one) {
    if (one.kind === "negotiate") {
      room.append(figures, curves, table);
      figures.append(facts(["Accuracy, by the surface", one.quality === null ? "–" : `≈ ${perCent(one.quality)}`], ["Paid", number(one.paid)], ["Owners", number(one.owners, 0)]));
      contracts(table, run, one).refresh();
      try { for (const node of played(await get(`${runPath(run)}/curves`))) curves.append(node); } catch (problem) { curves.append(h("section", { class: "box" }, h("p", { class: "note" }, problem.message))); }
      return;
    }
    room.append(empty("Nothing to show here", `This folder was written by another command (${one.kind}). Its figures are in the folder itself.`));
  }

  const quit = follow(run, {
    state: (state) => { trouble.querySelector(".lost")?.remove(); draw(state); },
    lost: () => { if (!trouble.querySelector(".lost")) trouble.append(h("p", { class: "box lost", role: "status" }, "The server does not answer just now. The run itself goes on; this page looks again by itself.")); },
  });
  return () => { quit(); accuracy.destroy(); };
}

// How the negotiation went: the game with the exact equilibrium, or the price of the clock.
function played(found) {
  const out = [];
  if (found.trace) {
    for (const [name, title, y] of [["saving", "Saving over the iterations", "mean saving"], ["payment", "Payment over the iterations", "mean payment"]]) {
      const chart = new Chart({ title, why: "Means over all owners; dashed is the exact equilibrium of this game.", x: "iteration", y });
      out.push(h("section", { class: "box" }, chart.node));
      const x = found.trace.iteration, level = found.equilibrium[name];
      requestAnimationFrame(() => chart.update([
        { label: "learned", colour: "--market", x, y: found.trace[name] },
        { label: "exact equilibrium", colour: "--exact", dash: true, x: [x[0], x[x.length - 1]], y: [level, level] }]));
    }
  } else if (found.clock) {
    const price = new Chart({ title: "The price of the clock", why: "The price falls until the owners that are left are worth it.", x: "question", y: "price", whole: true });
    const staying = new Chart({ title: "Owners that stay", why: "Who says no once is out.", x: "question", y: "owners", whole: true });
    const { question: x } = found.clock;
    requestAnimationFrame(() => {
      price.update([{ label: "price", colour: "--clock", steps: true, x, y: found.clock.price }]);
      staying.update([{ label: "owners left", colour: "--market", steps: true, x, y: found.clock.staying }]);
    });
    out.push(h("section", { class: "box" }, price.node), h("section", { class: "box" }, staying.node));
  } else if (found.equilibrium) {
    out.push(h("section", { class: "box" }, h("h2", {}, "The exact equilibrium of this game"),
      facts(["Mean saving", short(found.equilibrium.saving)], ["Mean payment", short(found.equilibrium.payment)])));
  }
  return out;
}
