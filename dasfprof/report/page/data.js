// The columns of the page: base64 of zlib of shuffled bytes, each in an element of its own, which
// is removed once it is read. document.py is the other half.

import { byId } from "./dom.js";
import { bytesOfBase64, inflate } from "./inflate.js";

const MISSING = 0xffffffff;
const NUMBERS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

export class Columns {
  about; prefix;

  /** `about`: how each column is decoded, by its name; `prefix`: of the names of the groups to read. */
  constructor(about, prefix = "") {
    Object.assign(this, { about, prefix });
  }

  /** The columns of a group by their names: numbers in the unit of each (NaN: unknown), or texts. */
  async group(name) {
    const begin = `${this.prefix}${name}/`;
    const columns = {};
    for (const [own, about] of Object.entries(this.about)) {
      if (!own.startsWith(begin)) continue;
      const element = byId(`column-${own}`);
      const bytes = await inflate(bytesOfBase64(element.textContent));
      element.remove();
      columns[own.slice(begin.length)] = decoded(bytes, about);
    }
    return columns;
  }
}

function decoded(bytes, about) {
  if (about.type === "text") return JSON.parse(new TextDecoder().decode(bytes));
  if (about.type === "f8") return new Float64Array(bytes.buffer);
  const numbers = unshuffled(bytes, about);
  if (about.delta) for (let at = 1; at < numbers.length; at += 1) numbers[at] += numbers[at - 1];
  if (about.values) return taken(numbers, about.values);
  return about.scale ? scaled(numbers, about.scale) : numbers;
}

/** Numbers whose lowest bytes stand first, then the second ones, and so on. */
function unshuffled(bytes, { type, count }) {
  const width = bytes.length / count;
  const inOrder = new Uint8Array(bytes.length);
  for (let plane = 0; plane < width; plane += 1)
    for (let at = 0; at < count; at += 1) inOrder[at * width + plane] = bytes[plane * count + at];
  return new NUMBERS[type](inOrder.buffer);
}

/** The values at places, NaN for null. */
function taken(places, values) {
  const known = Float64Array.from(values, (value) => value ?? NaN);
  const amounts = new Float64Array(places.length);
  for (let at = 0; at < places.length; at += 1) amounts[at] = known[places[at]];
  return amounts;
}

/** Numbers that count steps of a scale, rounded to what was stored: 3 steps of a millionth are 3e-6. */
function scaled(numbers, scale) {
  const [times, parts] = scale === 1e-6 ? [1, 1e6] : [scale, 1];
  const amounts = new Float64Array(numbers.length);
  for (let at = 0; at < numbers.length; at += 1)
    amounts[at] = numbers[at] === MISSING ? NaN : (numbers[at] * times) / parts;
  return amounts;
}

/**
 * A table of the page as a list of maps.
 *
 * @returns {any[]}
 */
export function rowsOf({ columns }) {
  const count = columns[0]?.values.length ?? 0;
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(columns.map(({ label, values }) => [label, values[at]])),
  );
}
