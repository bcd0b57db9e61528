// How many task runs were done, failed, under way and waiting, over the run.

import { make, svg } from "../dom.js";
import { counted, formatCell, formatCount, formatSeconds } from "../format.js";

/** Parts of the run, at whose ends is counted. */
const PARTS = 240;
/** The size in which it is drawn; it is stretched. */
const [WIDTH, HEIGHT] = [PARTS, 100];
/** What is stacked, from below. */
const LAYERS = ["failed", "done", "running", "waiting"];
/** Before it begins a task run has these. */
const BEFORE = ["Not started", "Inqueue", "Preparing"];

/**
 * The numbers of task runs at the end of each part of the run, by layer. What had not ended stays
 * where it was. A run waits from when the scheduler is known to have known it.
 */
export function progressOf(tasks, parts = PARTS) {
  const { starts, durations, count, failed, facts } = tasks;
  const before = tasks.statuses.filter(({ name }) => BEFORE.includes(name)).map(({ seconds }) => seconds);
  const [come, begun, done, lost] = Array.from({ length: 4 }, () => new Float64Array(parts + 1));
  const partOf = (time) => Math.min(Math.max(Math.ceil((time / (facts.span || 1)) * parts), 0), parts);
  for (let row = 0; row < count; row += 1) {
    let known = starts[row];
    for (const seconds of before) known -= seconds[row] || 0;
    come[partOf(known)] += 1;
    begun[partOf(starts[row])] += 1;
    if (tasks.isOpen(row)) continue;
    const ended = failed?.[row] ? lost : done;
    ended[partOf(starts[row] + durations[row])] += 1;
  }
  for (const sums of [come, begun, done, lost])
    for (let at = 1; at <= parts; at += 1) sums[at] += sums[at - 1];
  return {
    failed: lost,
    done,
    running: begun.map((number, at) => number - done[at] - lost[at]),
    waiting: come.map((number, at) => number - begun[at]),
  };
}

/** Of a run that goes on, a time left of more than so many times that which has gone by is only told. */
const FORESEEN = 4;
const NOT_DRAWN = "Those that never began are not drawn.";

/**
 * What is still to come at the end, in words: when it ends is only said where something tells; empty if nothing is.
 *
 * @param left What a run that goes on has left, see `still_to_come`; null of one that does not.
 * @param unfinished How many tasks of one had not ended.
 */
export function leftInWords(left, unfinished) {
  if (!left) return unfinished ? `${counted(unfinished, "task")} had not ended. ${NOT_DRAWN}` : "";
  const known = left.seconds !== null;
  const pace = `, at the pace of the last 30 s ${left.unknown ? "no sooner than" : "until"} about `;
  const end = known ? `${pace}${formatSeconds(left.seconds)} from then` : "; when they end, nothing tells";
  const unknown = left.unknown ? `: of ${counted(left.unknown, "task")} no other of the function has ended` : "";
  return `It goes on: ${counted(left.tasks, "task")} had not ended${end}${unknown}. ${NOT_DRAWN}`;
}

/** The figure of the progress; null: nothing ran. */
export function progressFigure(tasks, { left, summary }) {
  if (!tasks.count) return null;
  const progress = progressOf(tasks);
  const ended = progress.done[PARTS] + progress.failed[PARTS];
  const all = progress.done.map((_, at) => LAYERS.reduce((sum, name) => sum + progress[name][at], 0));
  const ahead = left?.seconds && left.seconds <= FORESEEN * tasks.facts.span ? left : null;
  const most = ahead ? Math.max(...all, ended + ahead.tasks) : Math.max(...all);
  const told = leftInWords(left, summary.unfinished);
  const nameOf = (name) => (told && name === "waiting" ? "waiting that began later" : name);
  const words = (at) =>
    LAYERS.toReversed().map((name) => `${formatCount(progress[name][at])} ${nameOf(name)}`).join(", ");
  const label = `Task runs over time: halfway ${words(PARTS / 2)}; at the end ${words(PARTS)}`;
  const wide = WIDTH * (ahead ? 1 + ahead.seconds / (tasks.facts.span || 1) : 1);
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  picture.setAttribute("aria-label", label);
  const below = new Float64Array(PARTS + 1);
  for (const name of LAYERS) {
    const lower = Array.from(below, (number, at) => [at, number]);
    for (let at = 0; at <= PARTS; at += 1) below[at] += progress[name][at];
    const upper = Array.from(below, (number, at) => [at, number]);
    const points = [...upper, ...lower.reverse()].map(([x, number]) => `${x},${HEIGHT * (1 - number / most)}`);
    picture.append(svg("polygon", { class: name, points: points.join(" ") }));
  }
  if (ahead) {
    const points = [[WIDTH, ended], [wide, ended + ahead.tasks]];
    const line = points.map(([x, number]) => `${x},${HEIGHT * (1 - number / most)}`).join(" ");
    picture.append(svg("polyline", { class: "ahead", points: line }));
  }
  const reading = make("output", {}, `at the end: ${words(PARTS)}`);
  picture.addEventListener("pointermove", ({ clientX }) => {
    const { x, width } = picture.getBoundingClientRect();
    const at = Math.round(Math.min(Math.max((clientX - x) / width, 0) * (wide / WIDTH), 1) * PARTS);
    reading.textContent = `at ${formatCell((at / PARTS) * tasks.facts.span, 2)} s: ${words(at)}`;
  });
  const legend = LAYERS.toReversed().map((name) => make("li", {}, make("i", { class: name }), nameOf(name)));
  if (ahead) legend.push(make("li", {}, make("i", { class: "ahead" }), "expected"));
  const whole = `${counted(tasks.count, "task run")} in ${formatSeconds(tasks.facts.span)}`;
  const caption = `Progress: ${whole}${told && `. ${told}`}`;
  return make(
    "figure",
    { class: "picture progress" },
    make("figcaption", {}, caption),
    picture,
    make("ul", { class: "legend" }, ...legend),
    reading,
  );
}
