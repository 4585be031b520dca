/* trace_page_sums.js - who holds how much after any number of events.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

/* Sums of what is lent, for groups: an array with the lent bytes of
 * each group and, last, the bytes asked for. They are kept every STEP events, so that any moment is
 * near one that is known. */
function makeSums(groups) {
  const STEP = 4096;
  const {lives, events, count} = Model;
  const {by} = groups;
  const kept = [];

  /* Adds a life, or takes it away. */
  function change(state, life, sign) {
    state[groups.slotOf(lives[by][life])] += sign * lives.size[life];
    state[state.length - 1] += sign * lives.requested[life];
  }

  /* Takes event `i` into account; returns whether it changed anything. */
  function apply(state, i) {
    const life = lives.of[i];
    if (life >= 0) {
      change(state, life, events.action[i] === ACTION.ALLOC ? 1 : -1);
    }
    return life >= 0;
  }

  function at(moment) {
    const near = Math.min(kept.length - 1, Math.floor(moment / STEP));
    const state = kept[near].slice();
    for (let i = near * STEP; i < moment; i++) {
      apply(state, i);
    }
    return state;
  }

  function lent(state) {
    let sum = 0;
    for (let k = 0; k < state.length - 1; k++) {
      sum += state[k];
    }
    return sum;
  }

  const state = new Float64Array(groups.names.length + 1);
  for (let life = 0; life < lives.count; life++) {
    if (lives.start[life] < 0) {
      change(state, life, 1);
    }
  }
  for (let i = 0; i <= count; i++) {
    if (i % STEP === 0) {
      kept.push(state.slice());
    }
    if (i < count) {
      apply(state, i);
    }
  }
  return {groups, at, apply, lent, asked: (sums) => sums[sums.length - 1]};
}
