/* trace_page_sums.js - who holds how much after any number of events, by client or by stream.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

/* Who gets which colour: the seven that ever held most, by client or by stream; the rest share. */
const Groups = (() => {
  const made = new Map();

  function build(by) {
    const {lives, events, count} = Model;
    const held = new Map();
    const peak = new Map();
    function change(key, size) {
      const now = (held.get(key) ?? 0) + size;
      held.set(key, now);
      if (now > (peak.get(key) ?? 0)) {
        peak.set(key, now);
      }
    }
    for (let life = 0; life < lives.count; life++) {
      if (lives.start[life] < 0) {
        change(lives[by][life], lives.size[life]);
      }
    }
    for (let i = 0; i < count; i++) {
      const life = lives.of[i];
      if (life >= 0) {
        change(lives[by][life], events.action[i] === ACTION.ALLOC ? lives.size[life] : -lives.size[life]);
      }
    }
    const keys = [...peak.keys()].sort((a, b) => peak.get(b) - peak.get(a));
    const most = keys.length > Paint.OTHERS ? Paint.OTHERS - 1 : keys.length;
    const slots = new Map(keys.map((key, at) => [key, at < most ? at : most]));
    const name = by === 'client' ? Model.client : (key) => {
      const stream = Model.stream(key);
      return /^\d/.test(stream) ? `stream ${stream}` : stream === 'none' ? 'no stream' : `${stream} stream`;
    };
    const names = keys.slice(0, most).map(name);
    const colours = Paint.COLOURS.slice(0, most);
    if (keys.length > most) {
      names.push(`${keys.length - most} others`);
      colours.push(Paint.COLOURS[Paint.OTHERS]);
    }
    return {by, names, colours, slotOf: (key) => slots.get(key) ?? most, nameOf: name,
      colourOf: (key) => colours[slots.get(key) ?? most] ?? Paint.COLOURS[Paint.OTHERS]};
  }

  /* The groups by 'client' or by 'stream'. */
  function of(by) {
    if (!made.has(by)) {
      made.set(by, build(by));
    }
    return made.get(by);
  }

  return {of};
})();

/* Sums of what is lent, for the groups by 'client' or by 'stream': an array with the lent bytes of
 * each group and, last, the bytes asked for. They are kept every STEP events, so that any moment is
 * near one that is known. */
function makeSums(by) {
  const STEP = 4096;
  const {lives, events, count} = Model;
  const groups = Groups.of(by);
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
