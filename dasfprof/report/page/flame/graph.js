// A flame graph: calls as wide as their seconds, those that they make under them.

import { make } from "../dom.js";
import { shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";

const FLAME_HEIGHT = 22;
/** Narrower calls, as a share of the graph, have no place in it until it is zoomed to them. */
const LEAST_WIDTH = 0.002;

/** Calls by their depths, each followed by those that it makes: its place `at`, `caller`, `calls`. */
export function treeOf(depths) {
  const way = [];
  return Array.from(depths, (depth, at) => {
    const call = { at, depth, caller: depth ? way[depth - 1] : null, calls: [] };
    call.caller?.calls.push(call);
    way[depth] = call;
    return call;
  });
}

export class FlameGraph {
  root; calls; seconds; name; title; dress; chosen;

  /**
   * `calls`: see `treeOf`. Of a call, `seconds(call)` are those of it and of what it calls,
   * `name(call)` and `title(call)` texts; `dress(element, call)` gives it a colour. `chosen(call)`
   * is told what the graph is zoomed to; null: all of it.
   */
  constructor(root, { calls, seconds, name, title, dress, chosen = () => {} }) {
    Object.assign(this, { root, calls, seconds, name, title, dress, chosen });
    this.wanted = "";
    this.zoomed = null;
    root.onkeydown = (event) => this.onKey(event);
    this.draw();
  }

  /** Zooms to a call, or to all. */
  zoom(call) {
    const hadFocus = this.root.contains(document.activeElement);
    this.zoomed = call;
    this.draw();
    const shown = this.drawn.find((one) => one.call === call) ?? this.drawn[0];
    if (shown && hadFocus) this.focus(shown);
    this.chosen(call);
  }

  draw() {
    this.drawn = [];
    const way = [];
    for (let call = this.zoomed?.caller; call; call = call.caller) way.unshift(call);
    for (const [level, call] of way.entries()) this.add(call, 0, 1, level, "above");
    const outermost = this.zoomed ? [this.zoomed] : this.calls.filter((call) => !call.caller);
    this.addAll(outermost, 0, 1, sumOf(outermost.map(this.seconds)), way.length);
    const levels = this.drawn.reduce((most, { level }) => Math.max(most, level + 1), 0);
    this.root.style.height = `${Math.max(levels, 1) * FLAME_HEIGHT}px`;
    this.root.replaceChildren(...this.drawn.map(({ element }) => element));
    if (this.drawn.length) this.drawn[way.length].element.tabIndex = 0;
    this.light();
  }

  /** Adds calls side by side; together they are as wide as their seconds are of `whole`. */
  addAll(calls, left, width, whole, level) {
    for (const call of calls) {
      const share = whole > 0 ? (this.seconds(call) / whole) * width : 0;
      if (share >= LEAST_WIDTH) {
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

  /** Lights the calls whose text holds another one; returns how many, and their seconds. */
  find(text) {
    this.wanted = text.toLowerCase();
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
    return this.wanted !== "" && this.title(call).toLowerCase().includes(this.wanted);
  }

  light() {
    this.root.classList.toggle("searched", this.wanted !== "");
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
    const longest = inner.reduce(
      (most, one) => (most && this.seconds(most.call) >= this.seconds(one.call) ? most : one),
      undefined,
    );
    const next = {
      ArrowUp: () => this.drawn.find(({ call }) => call === now.call.caller),
      ArrowDown: () => longest,
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
