/* trace_page_tables.js - the tables below the pictures: who holds what.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

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
      ...cells.map((cell, i) => Text.make('td', {class: columns[i][1], 'data-name': columns[i][0]}, cell))));
    host.replaceChildren(Text.make('table', {}, Text.make('thead', {}, head), Text.make('tbody', {}, ...body)));
  }

  /* A name with its colour, if it has one of its own just now. */
  function named(groups, by, key, text, title = text) {
    const cell = Text.make('span', {title});
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
    table('clients', [['client', null], ['in use', null], ['requested', null], ['blocks', null], ['share', null]],
      sorted(all).map(([key, share]) => [named(groups, 'client', key, Model.client(key)), Text.bytes(share.lent),
        Text.bytes(share.requested), Text.count(share.blocks), Text.percent(total > 0 ? share.lent / total : 0)]),
      'No client has opened the pool.');
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
    table('streams', [['stream', null], ['in use', null], ['requested', null], ['blocks', null], ['free for it', null]],
      sorted(all).map(([key, share]) => [named(groups, 'stream', key, Model.streamName(key), Model.streamHandle(key)), Text.bytes(share.lent),
        Text.bytes(share.requested), Text.count(share.blocks), now ? Text.bytes(kept.get(key) ?? 0) : '–']),
      'No stream holds memory.');
  }

  function showKinds(groups, lent, total) {
    table('kinds', [['kind', null], ['in use', null], ['requested', null], ['blocks', null], ['share', null]],
      sorted(shares(lent, 'kind')).map(([key, share]) => [named(groups, 'kind', key, Labels.KINDS[key]),
        Text.bytes(share.lent), Text.bytes(share.requested), Text.count(share.blocks),
        Text.percent(total > 0 ? share.lent / total : 0)]),
      'Nothing is in use.');
  }

  function showStats() {
    const {stats} = Model.about;
    const rows = [
      ['limit', stats.limit === null ? 'none' : Text.bytes(stats.limit)],
      ['peak in use', Text.bytes(stats.in_use_max)],
      ['peak reserved from the device', Text.bytes(stats.total_max)],
      ['largest request served', Text.bytes(stats.alloc_size_max)],
      ['requests served', Text.count(stats.allocs)],
      ['of them outside the arena', Text.count(stats.reserves)],
      ['blocks freed', Text.count(stats.frees)],
      ['requests that ran out of memory', Text.count(stats.failures)],
      ['times the pool grew', Text.count(stats.extensions)],
      ['times it returned memory', Text.count(stats.shrinkages)],
      ['events recorded for other streams', Text.count(stats.events)],
      ['waits of streams', Text.count(stats.waits)],
    ];
    table('stats', [['since the pool was made', null], ['', null]], rows, '');
  }

  function show(groups, lent, there, now) {
    const total = lent.reduce((sum, block) => sum + block.size, 0);
    showClients(groups, lent, total);
    showStreams(groups, lent, there, now);
    showKinds(groups, lent, total);
  }

  return {table, named, show, showStats};
})();
