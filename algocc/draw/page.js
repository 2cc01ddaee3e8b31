"use strict";
// Steps through the drawn panels and says what is under the pointer. It draws nothing: it sets classes, fills and text.

const data = JSON.parse(document.getElementById("data").textContent);
const inputs = data.inputs.length;
const MOST_LINES = 400;
const byId = (id) => document.getElementById(id);
const write = (event) => {
  const [step, reduces, src, dst, what, carries, holds, source, needs, culprit] = data.writes[event - inputs];
  return { step, reduces, src, dst, what, carries, holds, source, needs, culprit };
};

const arrows = new Map(data.drawn.map((i) => [i + inputs, byId("w" + i)]));
let state = 0; // steps done, of those in the picture
let cells = new Map(); // "rank-result" to [shade, share, event, wrong]
let chosen = null; // the event that is followed, and the cell it was chosen by
let timer = null;

for (let step = 0; step < data.steps; step++) byId("b" + (data.first + step)).classList.add("band");
for (const cell of document.querySelectorAll("#panels [id]")) if (/^[cl]\d+-\d+$/.test(cell.id)) cell.classList.add("cell");

function holdings(until) {
  const found = new Map();
  for (const changed of data.holdings.slice(0, until + 1))
    for (const [rank, result, ...rest] of changed) found.set(rank + "-" + result, rest);
  return found;
}

function fraction(units) {
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const by = gcd(units, data.whole);
  return units / by + (data.whole === by ? "" : "/" + data.whole / by);
}

function fill(id, colour) {
  const path = byId(id).querySelector("path");
  path.style.fill = colour;
}

function show(next) {
  state = Math.max(0, Math.min(data.steps, next));
  const current = data.first + state - 1; // the step just done
  byId("slider").value = state;
  byId("when").textContent = state ? `after step ${current} of ${data.first}..${data.first + data.steps - 1}` : `before step ${data.first}`;
  const followed = chosen && behind(chosen.event);
  for (const [event, arrow] of arrows) {
    const { step } = write(event);
    const when = step === current ? "now" : step < current ? "before" : "after";
    const look = followed ? (followed.has(event) ? "on" : "off") : state === 0 ? "" : when;
    for (const element of [arrow, byId("t" + (event - inputs))]) if (element) element.setAttribute("class", look);
  }
  for (let step = 0; step < data.steps; step++) byId("b" + (data.first + step)).classList.toggle("lit", step === state - 1);
  if (data.results.length) colour();
}

function colour() {
  cells = holdings(state);
  for (let rank = 0; rank < data.n; rank++)
    for (let result = 0; result < data.results.length; result++) {
      const at = rank + "-" + result;
      const [shade, , , wrong] = cells.get(at) || [0, "0", -1, false];
      fill("c" + at, data.shades[shade]);
      byId("c" + at).classList.toggle("bad", wrong);
      byId("c" + at).classList.toggle("chosen", chosen !== null && chosen.cell === at);
    }
  const [total, now] = sent();
  for (let src = 0; src < data.n; src++)
    for (let dst = 0; dst < data.n; dst++) {
      const at = src + "-" + dst;
      fill("l" + at, data.shades[Math.ceil(((total.get(at) || 0) / Math.max(1, data.busiest)) * (data.shades.length - 1))]);
      byId("l" + at).classList.toggle("used", now.has(at));
    }
}

function sent() {
  const total = new Map();
  let now = new Map();
  data.sent.slice(0, state + 1).forEach((step, i) => {
    now = new Map();
    for (const [src, dst, units] of step) {
      const at = src + "-" + dst;
      total.set(at, (total.get(at) || 0) + units);
      if (i) now.set(at, units);
    }
  });
  return [total, now];
}

function behind(event) {
  const seen = new Set([event]);
  const todo = [event];
  while (todo.length) {
    const at = todo.pop();
    for (const before of at < inputs ? [] : write(at).needs)
      if (before >= 0 && !seen.has(before)) {
        seen.add(before);
        todo.push(before);
      }
  }
  return seen;
}

// The contributions to a value as lines: its last write, under it the operands from left to right.
function tree(event) {
  const lines = [];
  const stack = [[event, "", ""]];
  while (stack.length && lines.length < MOST_LINES) {
    const [at, lead, under] = stack.pop();
    if (at < 0) {
      lines.push(lead + "(nothing was written)");
    } else if (at < inputs) {
      lines.push(lead + data.inputs[at]);
    } else {
      const w = write(at);
      lines.push(`${lead}step ${w.step}: ${w.what}  ${w.holds}` + (w.source ? `  (${w.source})` : "") + (w.culprit ? "  <- wrong" : ""));
      [...w.needs].reverse().forEach((before, i) => stack.push([before, under + (i ? "├─ " : "└─ "), under + (i ? "│  " : "   ")]));
    }
  }
  if (stack.length) lines.push("… and more");
  return lines.join("\n");
}

function follow(event, cell) {
  chosen = event === null || event < 0 ? null : { event, cell };
  byId("heading").textContent = chosen ? `What leads to ${event < inputs ? data.inputs[event] : write(event).what.split(" ")[0]}` : "What is where";
  byId("tree").textContent = chosen ? tree(event) : "Hover an arrow to see what it carries.\nClick an arrow or a cell to follow\nthe contributions to that chunk.";
  show(state);
}

// What is at a point; arrows are thin, so one that is near will do.
function target({ clientX, clientY }) {
  const near = [[0, 0], [0, 3], [0, -3], [3, 0], [-3, 0], [0, 6], [0, -6]];
  const hit = near.map(([x, y]) => document.elementFromPoint(clientX + x, clientY + y)?.closest('[id^="w"], .cell, .band'));
  const found = hit.find((element) => element && element.id.startsWith("w")) || hit[0];
  const parts = found && found.id.match(/^([wclb])(\d+)(?:-(\d+))?$/);
  return parts && { kind: parts[1], a: Number(parts[2]), b: Number(parts[3]) };
}

function says({ kind, a, b }) {
  if (kind === "w") {
    const w = write(a + inputs);
    return [
      w.what,
      `step ${w.step}, rank ${w.src} to rank ${w.dst}, ${w.reduces ? "reduce" : "copy"}`,
      w.carries ? `carries the contributions of ${w.carries}` : "what it carries is not known",
      w.holds ? `then there is ${w.holds}` : "",
      w.source,
      w.culprit ? "here it goes wrong" : "",
    ].filter(Boolean).join("\n");
  }
  if (kind === "c") {
    const [, share, event, wrong] = cells.get(a + "-" + b) || [0, "0", -1, false];
    const holds = event < 0 ? "" : event < inputs ? `, its own ${data.inputs[event]}` : `, ${write(event).holds} in ${write(event).what.split(" ")[0]}`;
    return `rank ${a} holds ${share === "1" ? "all" : share === "0" ? "nothing" : share} of ${data.results[b]}${holds}` + (wrong ? "\nwrong in the end" : "");
  }
  if (kind === "l") {
    const [total, now] = sent();
    const at = a + "-" + b;
    return `rank ${a} to rank ${b}: ${fraction(total.get(at) || 0)} vectors so far, ${fraction(now.get(at) || 0)} in this step`;
  }
  return "";
}

document.addEventListener("mousemove", (e) => {
  const found = target(e);
  const text = found ? says(found) : "";
  const tip = byId("tip");
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
});

document.addEventListener("click", (e) => {
  const found = target(e);
  if (!found) {
    if (e.target.closest("#diagram, #panels")) follow(null);
  } else if (found.kind === "w") follow(found.a + inputs, null);
  else if (found.kind === "b") show(found.a - data.first + 1);
  else if (found.kind === "c") follow((cells.get(found.a + "-" + found.b) || [0, "0", -1])[2], found.a + "-" + found.b);
});

function play() {
  if (timer !== null) {
    clearInterval(timer);
    timer = null;
  } else {
    if (state === data.steps) show(0);
    timer = setInterval(() => {
      show(state + 1);
      if (state === data.steps) play();
    }, 900);
  }
  byId("play").textContent = timer === null ? "play" : "stop";
}

const actions = { start: () => show(0), back: () => show(state - 1), play, on: () => show(state + 1), end: () => show(data.steps) };
for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
const keys = { ArrowLeft: "back", ArrowRight: "on", Home: "start", End: "end", " ": "play" };
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") follow(null);
  else if (e.key in keys) actions[keys[e.key]]();
  else return;
  e.preventDefault();
});
byId("slider").max = data.steps;
byId("slider").addEventListener("input", (e) => show(Number(e.target.value)));
show(0);
