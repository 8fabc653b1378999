// Looks at /status again and again, and hands what it sees to the parts of the page.

import { Chart } from "./chart.js";
import { byId, duration, element, say, short } from "./dom.js";
import { History } from "./history.js";
import { showModels, showReplicas } from "./model.js";
import { startRerank } from "./rerank.js";
import { ServerError, get, hasKey, useKey } from "./server.js";
import { startSimilarity } from "./similarity.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

const LOOK_EVERY_MS = 1000;
const LOOK_AGAIN_AFTER_ERROR_MS = 3000;
const LOOK_TIMEOUT_MS = 10_000;

const history = new History();
const charts = [
  new Chart({
    title: "Requests per second",
    series: [
      { key: "requests", label: "answered", ink: "first" },
      { key: "errors", label: "errors", ink: "bad" },
    ],
    format: short,
  }),
  new Chart({
    title: "Tokens per second",
    series: [{ key: "tokens", label: "read", ink: "first" }],
    format: short,
  }),
  new Chart({
    title: "Tokens in flight",
    series: [
      { key: "outstanding", label: "all", ink: "first" },
      { key: "queued", label: "waiting", ink: "second" },
    ],
    format: short,
  }),
  new Chart({
    title: "Latency",
    series: [
      { key: "p50", label: "p50", ink: "first" },
      { key: "p99", label: "p99", ink: "second" },
    ],
    format: duration,
  }),
];
const tabs = startTabs();
let paused = false;
let timer = 0;
let models = [];

function drawCharts() {
  const until = history.samples.at(-1)?.at ?? Date.now() / 1000;
  const seconds = Number(byId("span").value);
  for (const chart of charts) chart.show(history.samples, until, seconds);
}

async function look() {
  clearTimeout(timer);
  timer = 0;
  let pause = LOOK_EVERY_MS;
  try {
    const { body } = await get("status", AbortSignal.timeout(LOOK_TIMEOUT_MS));
    show(body);
  } catch (error) {
    showTrouble(error);
    pause = LOOK_AGAIN_AFTER_ERROR_MS;
  }
  clearTimeout(timer);
  // A page that nobody sees does not ask.
  if (!document.hidden) timer = setTimeout(look, pause);
}

function show(status) {
  byId("key-form").hidden = true;
  say(byId("trouble"), "");
  byId("live").classList.remove("stale");
  history.add(Date.now() / 1000, status);
  if (!paused) drawCharts();
  showModels(byId("models"), status.models);
  showReplicas(byId("replicas"), status.replicas);
  offer(status.models);
  setState(...stateOf(status));
  const { requests_in_flight: inFlight } = status.gateway;
  byId("facts").textContent =
    `version ${status.version}, up ${duration(status.uptime_seconds * 1000)}, ${inFlight} in flight`;
}

function stateOf({ models, replicas }) {
  const ready = replicas.filter((replica) => replica.state === "ready").length;
  if (models.length === 0 || ready === 0) return ["waiting", "Not ready"];
  if (ready < replicas.length) return ["waiting", `${ready} of ${replicas.length} replicas ready`];
  return ["good", "Serving"];
}

function setState(state, text) {
  const pill = byId("state");
  // It is read aloud when it changes: so only then.
  if (pill.textContent === text && pill.dataset.state === state) return;
  pill.dataset.state = state;
  pill.textContent = text;
}

function showTrouble(error) {
  byId("live").classList.add("stale");
  if (error instanceof ServerError && error.status === 401) {
    byId("key-form").hidden = false;
    say(byId("trouble"), hasKey() ? "The server does not know this key." : "");
    setState("bad", "Key needed");
    return;
  }
  const text = error.name === "TimeoutError"
    ? `The server did not answer within ${LOOK_TIMEOUT_MS / 1000} s.`
    : error instanceof ServerError ? error.describe() : `This page failed: ${error.message}`;
  say(byId("trouble"), `${text}\nWhat is shown below is old.`);
  setState("bad", "Unreachable");
}

/** Fills the choice of models, and shows what the chosen one can do. */
function offer(served) {
  const names = (list) => JSON.stringify(list.map(({ name, task }) => [name, task]));
  if (names(served) !== names(models)) {
    const select = byId("model");
    const chosen = select.value;
    select.replaceChildren(...served.map(({ name }) => element("option", { value: name }, name)));
    if (served.some(({ name }) => name === chosen)) select.value = chosen;
    byId("model-choice").hidden = served.length < 2;
    byId("models-title").textContent = served.length > 1 ? "Models" : "Model";
  }
  models = served;
  const chosen = models.find(({ name }) => name === byId("model").value) ?? models[0];
  tabs.offerSimilarity(chosen?.task === "embed");
}

const chosenModel = () => (models.length > 1 ? byId("model").value : "");

byId("charts").append(...charts.map((chart) => chart.figure));
byId("span").addEventListener("change", drawCharts);
byId("model").addEventListener("change", () => offer(models));
byId("pause").addEventListener("click", ({ target }) => {
  paused = !paused;
  target.setAttribute("aria-pressed", String(paused));
  target.textContent = paused ? "Go on" : "Pause";
  if (!paused) drawCharts();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value.trim());
  byId("key").value = "";
  look();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) look();
});
startTheme(byId("theme"));
startRerank(chosenModel);
startSimilarity(chosenModel);
drawCharts();
look();
