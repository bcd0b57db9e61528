// Buttons beside the titles of workers: one folds the worker's lanes into one, one pins them to the top.

import { make } from "../dom.js";
import { visible } from "../format.js";
import { beginsGroup, titledTracks } from "./marks.js";
/** @import { Lanes } from "./lanes.js" */

/** Width of the button before a title. */
export const HANDLE = 16;

export class Handles {
  root; timeline;
  /** @type {Lanes} */ lanes;

  constructor(root, timeline, lanes) {
    Object.assign(this, { root, timeline, lanes });
    /** The element of each worker that has one. */
    this.shown = new Map();
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("focusin", (event) => this.rove(event.target));
  }

  /** Puts buttons beside the titles that are seen. */
  place(view, frame) {
    const placed = new Map();
    for (const { track, y } of view.handles ? titledTracks(view, frame) : []) {
      const { group, lanes } = view.tracks[track];
      if (lanes && beginsGroup(view, track)) placed.set(group, y);
    }
    for (const [worker, element] of this.shown) {
      if (placed.has(worker)) continue;
      element.remove();
      this.shown.delete(worker);
    }
    for (const [worker, y] of placed) {
      if (!this.shown.has(worker)) this.shown.set(worker, this.make(worker));
      this.update(worker, y);
    }
    if (!this.root.querySelector('[tabindex="0"]')) this.rove(this.root.querySelector("button:not([hidden])"));
  }

  make(worker) {
    const button = (name, act) =>
      make("button", { type: "button", class: name, tabindex: "-1", onclick: () => this.lanes[act](worker) });
    const element = make("div", {}, button("fold", "fold"), button("pin", "pin"));
    this.root.append(element);
    return element;
  }

  update(worker, y) {
    const { folded, pinned, foldable } = this.lanes;
    const element = this.shown.get(worker);
    const state = [y, folded.has(worker), pinned.has(worker)].join(" ");
    // Pictures follow each other fast: nothing is written anew that stays.
    if (element.dataset.state === state) return;
    element.dataset.state = state;
    const [fold, pin] = element.children;
    const name = visible(this.lanes.tasks.facts.workers[worker]);
    element.style.top = `${y - 8}px`;
    fold.hidden = !foldable.includes(worker);
    label(fold, folded.has(worker) ? "▸" : "▾", `Threads of ${name} in one lane`, folded.has(worker));
    label(pin, "↥", `Keep ${name} on top`, pinned.has(worker));
  }

  /** One button can be reached by Tab; the arrows go on from there. */
  rove(button) {
    if (!button) return;
    for (const other of this.root.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    button.tabIndex = 0;
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const focused = /** @type {any} */ (document.activeElement);
    if (step) {
      const all = [...this.root.children].sort((one, other) => one.offsetTop - other.offsetTop);
      const next = all[all.indexOf(focused.parentElement) + step];
      const same = next?.querySelector(`.${focused.className}:not([hidden])`);
      if (next) (same ?? next.querySelector("button:not([hidden])")).focus({ preventScroll: true });
      else this.timeline.scrollTo(this.timeline.scroll + step * 60);
    } else if (event.key === "ArrowRight") focused.nextElementSibling?.focus({ preventScroll: true });
    else if (event.key === "ArrowLeft")
      focused.parentElement.querySelector(".fold:not([hidden])")?.focus({ preventScroll: true });
    else return;
    event.preventDefault();
  }
}

function label(button, sign, name, pressed) {
  button.textContent = sign;
  button.title = name;
  button.setAttribute("aria-label", name);
  button.setAttribute("aria-pressed", String(pressed));
}
