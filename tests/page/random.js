// Pseudo-random numbers, the same each time.

/** Returns this many numbers from 0 to 1. */
export function drawn(count, seed = 1) {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  });
}
