/* trace_page_tables.js - words for events and blocks, and the tables below the pictures.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Describe = (() => {
  const {events, lives} = Model;

  function event(i) {
    const size = Text.bytes(events.requested[i] || events.size[i]);
    const who = Model.client(events.client[i]);
    switch (events.action[i]) {
      case ACTION.ALLOC: return `${size} lent to ${who}`;
      case ACTION.FREE: return `${size} freed, of ${who}`;
      case ACTION.USE: return `${size} of ${who} declared on stream ${Model.stream(events.stream[i])}`;
      case ACTION.FAIL: return `Out of memory: ${who} asked for ${size}`;
      case ACTION.GROW: return `${Text.bytes(events.size[i])} had from the device`;
      default: return `${Text.bytes(events.size[i])} given back to the device`;
    }
  }

  /* What there is to say of an event, beside its first line. */
  function rows(i) {
    const life = lives.of[i];
    const of_block = events.action[i] <= ACTION.USE;
    return [
      ['time', Text.time(events.time[i], 1000)],
      ['size', of_block ? `${Text.count(events.requested[i])} bytes, lent as ${Text.count(events.size[i])}` : null],
      ['address', events.action[i] === ACTION.FAIL ? null : Model.address(events.addr[i])],
      ['stream', events.action[i] <= ACTION.FAIL ? Model.streamHandle(events.stream[i]) : null],
      ['thread', Model.thread(events.thread[i])],
      ['lent for', life >= 0 && events.action[i] === ACTION.FREE && lives.start[life] >= 0
        ? Text.time(events.time[i] - events.time[lives.start[life]]) : null],
    ];
  }

  function since(block) {
    if (block.life < 0) {
      return null;
    }
    const start = lives.start[block.life];
    return start < 0 ? 'before the trace' : Text.time(events.time[start], 1e5);
  }

  function blockTitle(block) {
    return block.state === STATE.LENT ? `${Text.bytes(block.requested)} of ${Model.client(block.client)}`
      : `${Text.bytes(block.size)} ${STATE_WORDS[block.state]}`;
  }

  function blockRows(block) {
    const lent = block.state === STATE.LENT;
    return [
      ['address', Model.address(block.addr)],
      ['size', lent ? `${Text.count(block.requested)} bytes, lent as ${Text.count(block.size)}`
        : `${Text.count(block.size)} bytes`],
      ['stream', block.stream < 0 || block.state === STATE.UNMAPPED ? null : Model.streamHandle(block.stream)],
      ['lent at', since(block)],
    ];
  }

  function block(one) {
    return [blockTitle(one), ...blockRows(one).filter(([, value]) => value !== null)
      .map(([name, value]) => `${name} ${value}`)].join(' · ');
  }

  return {event, rows, since, block, blockTitle, blockRows};
})();

const Tables = (() => {
  /* columns: [heading, class or null]; rows of cells: texts or elements. */
  function table(id, columns, rows, nothing) {
    const host = document.getElementById(id);
    if (rows.length === 0) {
      host.replaceChildren(Text.make('p', {class: 'nothing'}, nothing));
      return;
    }
    const head = Text.make('tr', {}, ...columns.map(([name, kind]) => Text.make('th', {scope: 'col', class: kind}, name)));
    const body = rows.map((cells) => Text.make('tr', {},
      ...cells.map((cell, i) => Text.make('td', {class: columns[i][1]}, cell))));
    host.replaceChildren(Text.make('table', {}, Text.make('thead', {}, head), Text.make('tbody', {}, ...body)));
  }

  /* A name with its colour, if it has one of its own just now. */
  function named(groups, by, key, text) {
    const cell = Text.make('span', {title: text});
    if (groups.by === by) {
      cell.append(Paint.plain(groups.colourOf(key)));
    }
    cell.append(text);
    return cell;
  }

  /* Lent blocks summed by 'client' or 'stream'. */
  function shares(lent, by) {
    const all = new Map();
    for (const block of lent) {
      const share = all.get(block[by]) ?? {lent: 0, requested: 0, blocks: 0};
      share.lent += block.size;
      share.requested += block.requested;
      share.blocks++;
      all.set(block[by], share);
    }
    return all;
  }

  function sorted(map) {
    return [...map].sort((a, b) => b[1].lent - a[1].lent || a[0] - b[0]);
  }

  function showClients(groups, lent, total) {
    const all = shares(lent, 'client');
    Model.about.clients.forEach((_, key) => {
      if (!all.has(key)) {
        all.set(key, {lent: 0, requested: 0, blocks: 0});
      }
    });
    table('clients', [['client', null], ['lent', null], ['asked for', null], ['blocks', null], ['share', null]],
      sorted(all).map(([key, share]) => [named(groups, 'client', key, Model.client(key)), Text.bytes(share.lent),
        Text.bytes(share.requested), Text.count(share.blocks), Text.percent(total > 0 ? share.lent / total : 0)]),
      'Nobody has opened the pool.');
  }

  function showStreams(groups, lent, there, now) {
    const all = shares(lent, 'stream');
    const kept = new Map();
    for (const block of now ? there.flatMap(({blocks}) => blocks) : []) {
      if (block.state === STATE.FREE || block.state === STATE.KEPT) {
        kept.set(block.stream, (kept.get(block.stream) ?? 0) + block.size);
        if (!all.has(block.stream)) {
          all.set(block.stream, {lent: 0, requested: 0, blocks: 0});
        }
      }
    }
    table('streams', [['stream', null], ['lent', null], ['asked for', null], ['blocks', null], ['free for it', null]],
      sorted(all).map(([key, share]) => [named(groups, 'stream', key, Model.streamHandle(key)), Text.bytes(share.lent),
        Text.bytes(share.requested), Text.count(share.blocks), now ? Text.bytes(kept.get(key) ?? 0) : '–']),
      'No stream holds memory.');
  }

  function showLargest(groups, lent) {
    const largest = [...lent].sort((a, b) => b.size - a.size).slice(0, 12);
    table('largest', [['client', null], ['size', null], ['stream', 'text'], ['address', null], ['lent at', null]],
      largest.map((block) => [named(groups, 'client', block.client, Model.client(block.client)), Text.bytes(block.size),
        Model.stream(block.stream), Text.make('code', {}, Model.address(block.addr)), Describe.since(block) ?? '–']),
      'Nothing is lent.');
  }

  function showStats() {
    const {stats} = Model.about;
    const rows = [
      ['limit', stats.limit === null ? 'none' : Text.bytes(stats.limit)],
      ['most ever lent at one time', Text.bytes(stats.in_use_max)],
      ['most ever had from the device', Text.bytes(stats.total_max)],
      ['largest request served', Text.bytes(stats.alloc_size_max)],
      ['requests served', Text.count(stats.allocs)],
      ['of them outside the arena', Text.count(stats.reserves)],
      ['blocks freed', Text.count(stats.frees)],
      ['requests that ran out of memory', Text.count(stats.failures)],
      ['times the pool grew', Text.count(stats.extensions)],
      ['times it gave memory back', Text.count(stats.shrinkages)],
      ['events recorded for other streams', Text.count(stats.events)],
      ['waits of streams', Text.count(stats.waits)],
    ];
    table('stats', [['since the pool was made', null], ['', null]], rows, '');
  }

  function show(groups, lent, there, now) {
    const total = lent.reduce((sum, block) => sum + block.size, 0);
    showClients(groups, lent, total);
    showStreams(groups, lent, there, now);
    showLargest(groups, lent);
  }

  return {show, showStats};
})();
