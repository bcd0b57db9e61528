// A flame graph. The width of a call is its time, and the calls that it makes are below it.

import { make } from "../dom.js";
import { shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";

const FLAME_HEIGHT = 22;
/** Threshold (fraction of the graph's width): narrower calls are not drawn. */
const MIN_WIDTH = 0.002;

/** Returns calls with their index `at`, `caller` and `calls`, from the depths of calls in depth-first order. */
export function treeOf(depths) {
  const callers = [];
  return Array.from(depths, (depth, at) => {
    const call = { at, depth, caller: depth ? callers[depth - 1] : null, calls: [] };
    call.caller?.calls.push(call);
    callers[depth] = call;
    return call;
  });
}

export class FlameGraph {
  root; calls; seconds; name; title; dress; chosen;

  /**
   * `calls`: see `treeOf`. `seconds(call)` returns the time of a call with the calls that it makes, and
   * `name(call)` and `title(call)` return texts. `dress(element, call)` sets its colour. `chosen(call)` is
   * called with the zoomed call, or null.
   */
  constructor(root, { calls, seconds, name, title, dress, chosen = () => {} }) {
    Object.assign(this, { root, calls, seconds, name, title, dress, chosen });
    this.searched = "";
    this.zoomed = null;
    root.onkeydown = (event) => this.onKey(event);
    this.draw();
  }

  /** Zooms to a call, or shows all calls for null. */
  zoom(call) {
    const hadFocus = this.root.contains(document.activeElement);
    this.zoomed = call;
    this.draw();
    const shown = this.drawn.find((entry) => entry.call === call) ?? this.drawn[0];
    if (shown && hadFocus) this.focus(shown);
    this.chosen(call);
  }

  draw() {
    this.drawn = [];
    const callers = [];
    for (let call = this.zoomed?.caller; call; call = call.caller) callers.unshift(call);
    for (const [level, call] of callers.entries()) this.add(call, 0, 1, level, "above");
    const outermost = this.zoomed ? [this.zoomed] : this.calls.filter((call) => !call.caller);
    this.addAll(outermost, 0, 1, sumOf(outermost.map(this.seconds)), callers.length);
    const levels = this.drawn.reduce((highest, { level }) => Math.max(highest, level + 1), 1);
    this.root.style.height = `${levels * FLAME_HEIGHT}px`;
    this.root.replaceChildren(...this.drawn.map(({ element }) => element));
    if (this.drawn.length) this.drawn[callers.length].element.tabIndex = 0;
    this.light();
  }

  /** Adds calls next to each other. Their widths are their fractions of the total seconds. */
  addAll(calls, left, width, total, level) {
    for (const call of calls) {
      const share = total > 0 ? (this.seconds(call) / total) * width : 0;
      if (share >= MIN_WIDTH) {
        this.add(call, left, share, level);
        this.addAll(call.calls, left, share, this.seconds(call), level + 1);
      }
      left += share;
    }
  }

  add(call, left, width, level, kind = "") {
    const title = visible(this.title(call));
    const zoom = () => this.zoom(this.zoomed === call ? call.caller : call);
    const attributes = { type: "button", class: kind, title, tabindex: "-1", onclick: zoom };
    const label = make("span", {}, shortened(this.name(call), 80));
    const element = make("button", { ...attributes, "aria-label": title }, label);
    this.dress(element, call);
    element.style.left = `${left * 100}%`;
    element.style.width = `${width * 100}%`;
    element.style.top = `${level * FLAME_HEIGHT}px`;
    this.drawn.push({ call, element, left, level });
  }

  /** Highlights the calls whose title contains a text, and returns their number and seconds. */
  find(text) {
    this.searched = text.toLowerCase();
    this.light();
    let [count, seconds] = [0, 0];
    for (const call of this.calls) {
      if (!this.holds(call)) continue;
      count += 1;
      let outer = call.caller;
      while (outer && !this.holds(outer)) outer = outer.caller;
      if (!outer) seconds += this.seconds(call);
    }
    return { count, seconds };
  }

  holds(call) {
    return this.searched !== "" && this.title(call).toLowerCase().includes(this.searched);
  }

  light() {
    this.root.classList.toggle("searched", this.searched !== "");
    for (const { call, element } of this.drawn) element.classList.toggle("lit", this.holds(call));
  }

  focus(shown) {
    for (const { element } of this.drawn) element.tabIndex = element === shown.element ? 0 : -1;
    shown.element.focus();
  }

  onKey(event) {
    const now = this.drawn.find(({ element }) => element === event.target);
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const beside = this.drawn.filter(({ level }) => level === now.level);
    const place = beside.indexOf(now);
    const inner = this.drawn.filter(({ call }) => call.caller === now.call);
    const next = {
      ArrowUp: () => this.drawn.find(({ call }) => call === now.call.caller),
      ArrowDown: () => inner.sort((one, other) => this.seconds(other.call) - this.seconds(one.call))[0],
      ArrowLeft: () => beside[place - 1],
      ArrowRight: () => beside[place + 1],
      Home: () => this.drawn[0],
    }[event.key];
    if (next) {
      const shown = next();
      if (shown) this.focus(shown);
    } else if (event.key === "Escape" && this.zoomed) this.zoom(this.zoomed.caller);
    else return;
    event.preventDefault();
  }
}
