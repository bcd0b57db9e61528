// The header of the page, and the strip that shows which part of the run the timeline shows.

import { showClasses } from "./accounting.js";
import { byId, inNextFrame, make } from "./dom.js";
import {
  counted, formatBytes, formatCount, formatDate, formatSeconds, formatShare, shortened, visible,
} from "./format.js";
import { Frame, GUTTER } from "./timeline/frame.js";
import { fitCanvas } from "./timeline/marks.js";
import { currentPalette } from "./timeline/palette.js";

/** Seconds: smaller times come from clocks that started with their host, so they have no date. */
const UNIX_TIME = 1e9;
/** Maximum number of hosts whose names are shown. */
const MOST_HOSTS = 3;
/** Packages whose versions are shown. */
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
    ["Threads busy", formatShare((summary.held ?? NaN) / (summary.capacity ?? NaN)), "of their time, with tasks"],
    ["Failed", failedLink(summary.failed), "task runs with an error", summary.failed > 0],
    ...unfinished(summary),
    ...transferred(summary),
    ...firstTask(summary),
    ...cost(summary),
  ];
  byId("tiles").replaceChildren(...tiles.map((tile) => tileElement(...tile)));
  const list = notes.map((note) => make("li", {}, shortened(note, 1000)));
  byId("notes").replaceChildren(...list);
  byId("notes-section").hidden = !list.length;
}

/** Returns the names of hosts, or their number if there are many. */
function hostsOf({ hosts }) {
  if (hosts.length > MOST_HOSTS) return counted(hosts.length, "host");
  return hosts.length ? hosts.map((host) => shortened(host, 40)).join(", ") : "unknown host";
}

/** Returns the command of the program, and the versions of packages. */
function recordedWith({ command, versions }) {
  const named = PACKAGES.filter((name) => versions[name]).map((name) => `${name} ${versions[name]}`);
  return visible([command, named.join(", ")].filter((part) => part !== "").join(" · "));
}

/** Returns the number of failed task runs, as a link that shows only these. */
function failedLink(count) {
  if (!count) return formatCount(count);
  const link = { href: "#view=flatten&state=erred", title: "Show them in the timeline" };
  return make("a", link, formatCount(count));
}

/** Returns the tile of unfinished tasks, if there are any. */
function unfinished({ unfinished: number }) {
  return number ? [["Unfinished", formatCount(number), "tasks when the recording ended", true]] : [];
}

/** Returns the tile of the first task, with the longest stage before it. */
function firstTask({ first_task: first, start }) {
  if (first === null || first.seconds === null) return [];
  return [["First task", formatSeconds(first.seconds), `after the recording started${start && `, ${start}`}`]];
}

/** Returns the tile of the cost, if a price is set. */
function cost({ cost: price }) {
  if (!price) return [];
  const { worker_hours: hours, idle_hours: idle, words } = price;
  const share = hours > 0 ? formatShare(idle / hours) : formatShare(NaN);
  return [["Cost", visible(words), `${hours.toPrecision(3)} worker-hours, ${share} of them idle`]];
}

/** Returns the tile of transfers, unless no task ran or an unfinished run has none yet. */
function transferred({ moved: bytes, shuffled, unfinished: number, tasks }) {
  if (bytes === null && (number || !tasks)) return [];
  const shuffles = shuffled > 0 ? `, ${formatBytes(shuffled)} of it by P2P shuffles` : "";
  const about = `between workers${shuffled === null ? ", without P2P shuffles" : shuffles}`;
  return [["Transferred", formatBytes(bytes ?? NaN), about]];
}

/** Returns the run time with busy threads. Tasks that wait for other tasks do not occupy a thread. */
function leastTime({ held, threads, tasks, unfinished: number }) {
  return threads && tasks && held !== null && !number
    ? `${formatSeconds(held / threads)} if all threads were always busy`
    : "from the first recorded event to the last";
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

/** A small picture of the full run: its busy threads, and a frame around what the timeline shows. */
export class Strip {
  from; to;

  /** `move(from, to)` is called when the user chooses another part of the run. */
  constructor(tasks, root, move) {
    this.tasks = tasks;
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.move = move;
    this.threads = tasks.tracks.filter((track) => track.thread !== null).length || 1;
    this.busy = tasks.facts.overview;
    this.canvas.addEventListener("pointerdown", (event) => this.onPress(event));
    this.draw = inNextFrame(() => this.paint());
    new ResizeObserver(this.draw).observe(root);
  }

  window(from, to) {
    [this.from, this.to] = [from, to];
    this.draw();
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
    const step = frame.width / this.busy.length;
    context.fillStyle = palette.accent;
    for (const [at, busy] of this.busy.entries()) {
      const high = (busy / this.threads) * (frame.height - 4);
      context.fillRect(frame.left + at * step, frame.height - high, step + 0.4, high);
    }
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = palette.text;
    context.fillText("Busy threads", 0, 13);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = palette.faint;
    context.fillText(`full run, of ${this.threads}`, 0, 29);
    const [x, end] = [frame.x(this.from), frame.x(this.to)];
    context.globalAlpha = 0.72;
    context.fillStyle = palette.background;
    context.fillRect(frame.left, 0, x - frame.left, frame.height);
    context.fillRect(end, 0, frame.left + frame.width - end, frame.height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.faint;
    context.strokeRect(x + 0.5, 0.5, Math.max(end - x - 1, 2), frame.height - 1);
  }

  /** Moves the frame if the drag starts inside of it, and else draws a new frame. */
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
