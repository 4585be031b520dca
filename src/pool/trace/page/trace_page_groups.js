/* trace_page_groups.js - who gets which colour, by client, kind, node or stream.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Groups = (() => {
  const ALL = 48; /* shown at most, also where the others are asked for */
  const NAMES = {client: Model.client, stream: Model.streamName, kind: (key) => Labels.KINDS[key],
    node: (key) => Labels.nodes[key]};
  const made = new Map();

  /* The most that each key ever held, as a Map. */
  function peaksOf(by) {
    const {lives, events, count} = Model;
    const held = new Map();
    const peak = new Map();
    function change(key, size) {
      const now = (held.get(key) ?? 0) + size;
      held.set(key, now);
      peak.set(key, Math.max(now, peak.get(key) ?? 0));
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
    return peak;
  }

  /* Those that ever held most get a colour of their own, the rest share one. */
  function build(by, all) {
    const peak = peaksOf(by);
    const keys = [...peak.keys()].sort((a, b) => peak.get(b) - peak.get(a));
    const room = all ? ALL : Paint.OTHERS;
    const most = keys.length > room ? room - 1 : keys.length;
    const slots = new Map(keys.map((key, at) => [key, Math.min(at, most)]));
    const names = keys.slice(0, most).map(NAMES[by]);
    const colours = names.map((_, at) => Paint.colour(at));
    if (keys.length > most) {
      names.push(`${Text.count(keys.length - most)} others`);
      colours.push(Paint.COLOURS[Paint.OTHERS]);
    }
    return {by, names, colours, others: keys.length - most, expandable: keys.length > Paint.OTHERS,
      slotOf: (key) => slots.get(key) ?? most, nameOf: NAMES[by],
      colourOf: (key) => colours[slots.get(key) ?? most] ?? Paint.COLOURS[Paint.OTHERS]};
  }

  /* The groups by 'client', 'kind', 'node' or 'stream'; `all`: those that share a colour, too. */
  function of(by, all) {
    const name = `${by} ${all}`;
    if (!made.has(name)) {
      made.set(name, build(by, all));
    }
    return made.get(name);
  }

  /* What tells most apart: kinds where there are several, and no clients that share the pool. */
  function usual() {
    return new Set(peaksOf('client').keys()).size < 2 && peaksOf('kind').size > 1 ? 'kind' : 'client';
  }

  return {of, usual};
})();
