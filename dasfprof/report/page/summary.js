// The head of the page, and the strip that shows which part of the run the window is.

import { showClasses } from "./accounting.js";
import { byId, make } from "./dom.js";
import {
  counted, formatBytes, formatCount, formatDate, formatSeconds, formatShare, shortened, visible,
} from "./format.js";
import { Frame, GUTTER } from "./timeline/frame.js";
import { fitCanvas } from "./timeline/marks.js";
import { currentPalette } from "./timeline/palette.js";

/** Times below are of clocks that began with their host, and no date. */
const UNIX_TIME = 1e9;
/** More hosts than this are counted, not named. */
const MOST_HOSTS = 3;
/** Versions of these are told. */
const PACKAGES = ["python", "dask", "distributed", "dasfprof"];

export function showSummary({ title, summary, accounting, notes, timeline }) {
  byId("title").textContent = visible(title);
  const threads = summary.threads === null ? "" : `, ${counted(summary.threads, "thread")}`;
  const cores = summary.cores === null ? "" : `, ${counted(summary.cores, "core")}`;
  const parts = [
    ...(summary.begin === null || summary.begin < UNIX_TIME ? [] : [formatDate(summary.begin)]),
    `${hostsOf(summary)}: ${counted(summary.workers, "worker")}${threads}${cores}`,
  ];
  byId("subtitle").textContent = parts.join(" · ");
  byId("recorded-with").textContent = recordedWith(summary);
  byId("verdict").textContent = visible(summary.headline);
  byId("spent-on").textContent = visible(summary.spent);
  showClasses(byId("classes"), byId("class-names"), accounting.cluster, timeline.gaps.classes);
  const tiles = [
    ["Run time", formatSeconds(summary.seconds ?? NaN), leastTime(summary)],
    ["Task runs", formatCount(summary.tasks), `of ${counted(summary.functions, "function")}`],
    ["Threads busy", formatShare(busyShare(summary)), "of their time, running tasks"],
    ["Failed", failedLink(summary.failed), "task runs, with an error", summary.failed > 0],
    ...unfinished(summary),
    ...moved(summary),
    ...firstTask(summary),
    ...cost(summary),
  ];
  byId("tiles").replaceChildren(...tiles.map((tile) => tileElement(...tile)));
  const list = notes.map((note) => make("li", {}, shortened(note, 1000)));
  byId("notes").replaceChildren(...list);
  byId("notes-section").hidden = !list.length;
}

/** The names of few hosts, the number of many. */
function hostsOf({ hosts }) {
  if (hosts.length > MOST_HOSTS) return counted(hosts.length, "host");
  return hosts.length ? hosts.map((host) => shortened(host, 40)).join(", ") : "unknown host";
}

/** The program that ran, and the versions of what it ran with. */
function recordedWith({ command, versions }) {
  const named = PACKAGES.filter((name) => versions[name]).map((name) => `${name} ${versions[name]}`);
  return visible([command, named.join(", ")].filter((part) => part !== "").join(" · "));
}

/** How many task runs failed: a link that shows these alone. */
function failedLink(count) {
  if (!count) return formatCount(count);
  const link = { href: "#view=flatten&state=erred", title: "Show them in the timeline" };
  return make("a", link, formatCount(count));
}

/** The tasks that had not ended, where there are such. */
function unfinished({ unfinished: number }) {
  return number ? [["Unfinished", formatCount(number), "tasks at the end of the recording", true]] : [];
}

/** How long it took to the first task, and which of the stages before it took longest. */
function firstTask({ first_task: found }) {
  if (found === null || found.seconds === null) return [];
  const stages = Object.entries(found.stages).filter(([, seconds]) => seconds !== null);
  const [stage, seconds] = stages.reduce((most, next) => (next[1] > most[1] ? next : most));
  const about = `after the start of the recording; most of it: ${stage}, ${formatSeconds(seconds)}`;
  return [["First task", formatSeconds(found.seconds), about]];
}

/** What the run cost, where a price is set. */
function cost({ cost: found }) {
  if (!found) return [];
  const { worker_hours: hours, idle_hours: idle, words } = found;
  const share = hours > 0 ? formatShare(idle / hours) : formatShare(NaN);
  return [["Cost", visible(words), `${hours.toPrecision(3)} worker-hours, ${share} of them idle`]];
}

/** Unknown where nothing ran, or a run that did not end moved nothing yet. */
function moved(summary) {
  const { moved: bytes, unfinished: number } = summary;
  if (bytes === null && (number || !summary.tasks)) return [];
  return [["Moved", formatBytes(bytes ?? NaN), `between workers${byShuffles(summary)}`]];
}

/** What P2P shuffles have to do with the bytes that were moved. */
function byShuffles({ shuffled }) {
  if (shuffled === null) return ", without P2P shuffles";
  return shuffled > 0 ? `, ${formatBytes(shuffled)} of it by P2P shuffles` : "";
}

/** What the run could not be shorter than on its threads: tasks that wait for others hold none. */
function leastTime({ held, threads, tasks, unfinished: number }) {
  return threads && tasks && held !== null && !number
    ? `at least ${formatSeconds(held / threads)} if all threads were always busy`
    : "from the first recorded event to the last";
}

/** The share of the threads' time for which tasks held them; NaN where it is unknown. */
function busyShare({ held, capacity }) {
  return capacity && held !== null ? held / capacity : NaN;
}

function tileElement(name, value, about, bad = false) {
  return make(
    "div",
    { class: bad ? "tile bad" : "tile" },
    make("dt", {}, name),
    make("dd", {}, value),
    make("dd", { class: "about" }, about),
  );
}

/** The whole run in small: its busy threads, and a frame around what the timeline shows. */
export class Strip {
  from; to;

  /** `move(from, to)` is called when the person chooses another part of the run. */
  constructor(tasks, root, move) {
    this.tasks = tasks;
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.move = move;
    this.threads = tasks.tracks.filter((track) => track.thread !== null).length || 1;
    this.busy = busyThreads(tasks);
    this.canvas.addEventListener("pointerdown", (event) => this.onPress(event));
    new ResizeObserver(() => this.paint()).observe(root);
  }

  window(from, to) {
    [this.from, this.to] = [from, to];
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      this.paint();
    });
  }

  get frame() {
    return new Frame({
      ...{ left: GUTTER, top: 0, width: Math.max(1, this.root.clientWidth - GUTTER), height: 40 },
      ...{ from: 0, to: this.tasks.span || 1, trackHeight: 40, scroll: 0 },
    });
  }

  paint() {
    const { frame } = this;
    const palette = currentPalette();
    fitCanvas(this.canvas, this.root.clientWidth, frame.height);
    const context = this.canvas.getContext("2d");
    context.fillStyle = palette.background;
    context.fillRect(0, 0, this.root.clientWidth, frame.height);
    const highest = this.threads;
    const step = frame.width / this.busy.length;
    context.fillStyle = palette.accent;
    for (const [at, busy] of this.busy.entries()) {
      const high = (busy / highest) * (frame.height - 4);
      context.fillRect(frame.left + at * step, frame.height - high, step + 0.4, high);
    }
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = palette.text;
    context.fillText("Busy threads", 0, 13);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = palette.faint;
    context.fillText(`whole run, of ${highest}`, 0, 29);
    const [x, end] = [frame.x(this.from), frame.x(this.to)];
    context.globalAlpha = 0.72;
    context.fillStyle = palette.background;
    context.fillRect(frame.left, 0, x - frame.left, frame.height);
    context.fillRect(end, 0, frame.left + frame.width - end, frame.height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.faint;
    context.strokeRect(x + 0.5, 0.5, Math.max(end - x - 1, 2), frame.height - 1);
  }

  /** Inside of the frame a drag moves it; elsewhere it draws a new one. */
  onPress(event) {
    const { frame } = this;
    this.canvas.setPointerCapture(event.pointerId);
    const begin = frame.time(event.offsetX);
    const [from, to] = [this.from, this.to];
    const grabbed = begin > from && begin < to && to - from < this.tasks.span * 0.999;
    const drag = ({ offsetX }) => {
      const time = frame.time(offsetX);
      if (grabbed) this.move(from + time - begin, to + time - begin);
      else if (Math.abs(offsetX - event.offsetX) > 3) this.move(Math.min(begin, time), Math.max(begin, time));
    };
    const drop = () => this.canvas.removeEventListener("pointermove", drag);
    this.canvas.addEventListener("pointermove", drag);
    this.canvas.addEventListener("pointerup", drop, { once: true });
  }
}

/** How many threads were busy in each part of the run; event loops, which tasks share, left out. */
function busyThreads({ tracks, facts: { overview } }) {
  const busy = new Float64Array(overview[0]?.length ?? 1);
  for (const [track, shares] of overview.entries()) {
    if (tracks[track].thread === null) continue;
    for (let at = 0; at < shares.length; at += 1) busy[at] += Number(shares[at]) / 9;
  }
  return busy;
}
