/* trace_page.js - puts the page together: one moment is shown everywhere.
 *
 * What is chosen stands in the page's address (#event=120&by=stream&axis=event&width=scale&find=conv), so that a
 * view can be shared.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

(() => {
  const {about, count} = Model;
  const by = (id) => document.getElementById(id);
  const usual = {by: Groups.usual(), axis: 'time', width: 'full', all: 'no', find: ''};
  const choice = {event: count, ...usual};
  const timeline = makeTimeline(scheduleMoment);
  let shown = -1;
  let scheduled = false;

  /* ---- words that stay ---- */

  function writeTitle() {
    by('timeline').classList.toggle('empty', count === 0);
    const place = about.memory === 'pinned' ? 'Pinned memory for' : 'Memory of';
    const title = `${place} ${about.device}`;
    document.title = `${title} – Millpond`;
    by('title').textContent = title;
    const span = count > 1 ? ` over ${Text.time(Model.events.time[count - 1])}` : '';
    by('subtitle').textContent = [about.name, about.driver, count === 0 ? 'no events kept' : `${Text.plural(count, 'event')}${span}`,
      about.dropped > 0 ? `${Text.plural(about.dropped, 'older event')} no longer kept` : ''].filter(Boolean).join(' · ');
    by('footer').textContent = `Written by Millpond ${about.version} on ${new Date(about.written * 1000).toLocaleString()}. ` +
      'Times count from the first event that is kept. Fragmentation is the part of the free memory that is not in ' +
      'the largest free block: 0 is none.';
  }

  function writeStates() {
    const groups = timeline.groups();
    const colour = groups.colours[0] ?? Paint.COLOURS[0];
    const item = (fill, words) => Text.make('li', {}, Paint.swatch(18, 12, fill), words);
    const state = (which, words) => item((context, width, height, scale) => {
      context.fillStyle = Paint.fills(context, scale)[which];
      context.fillRect(0, 0, width, height);
      context.strokeStyle = Paint.colours().line;
      context.strokeRect(0.5, 0.5, width - 1, height - 1);
    }, words);
    by('states').replaceChildren(
      item((context, width, height) => {
        context.fillStyle = colour;
        context.fillRect(0, 0, width, height);
        context.globalAlpha = 0.55;
        context.fillStyle = Paint.colours().free;
        context.fillRect(width * 0.7, 0, width, height);
      }, `in use, in the colour of its ${choice.by}; paler where rounding added to the requested size`),
      state(STATE.FREE, 'free'), state(STATE.KEPT, 'kept for the next request of its size'),
      state(STATE.WAITING, 'waits for a stream'), state(STATE.UNMAPPED, 'no memory mapped, drawn shorter'));
  }

  /* ---- words that follow the moment ---- */

  /* Opens those that share a colour, or closes them again. */
  function others(words) {
    const button = Text.make('button', {type: 'button', class: 'link', 'aria-expanded': choice.all === 'yes'}, words);
    button.addEventListener('click', () => {
      choice.all = choice.all === 'yes' ? 'no' : 'yes';
      regroup();
    });
    return button;
  }

  function writeLegend() {
    const groups = timeline.groups();
    const shares = timeline.shares();
    const is = Paint.colours();
    const rule = (colour, dashes, words) => Text.make('li', {}, Paint.swatch(18, 12, (context, width, height) => {
      context.strokeStyle = colour;
      context.lineWidth = 1.6;
      context.setLineDash(dashes);
      context.beginPath();
      context.moveTo(0, height / 2);
      context.lineTo(width, height / 2);
      context.stroke();
    }), words);
    const bands = groups.names.map((name, k) => Text.make('li', {}, Paint.plain(groups.colours[k], 18),
      k === groups.names.length - 1 && groups.others > 0 && choice.all === 'no' ? others(name) : Text.make('b', {title: name}, name),
      Text.bytes(shares[k])));
    if (choice.all === 'yes' && groups.expandable) {
      bands.push(Text.make('li', {}, others('fewer')));
    }
    const lines = [rule(is.ink, [], 'reserved from the device'), rule(is.ink, [1.5, 2.5], 'requested')];
    if (about.stats.limit !== null) {
      lines.push(rule(is.alarm, [5, 3], `limit ${Text.bytes(about.stats.limit)}`));
    }
    if (Model.failures.length > 0) {
      lines.push(Text.make('li', {}, Paint.swatch(18, 12, (context, width, height) => {
        context.fillStyle = is.alarm;
        context.beginPath();
        context.moveTo(width / 2 - 5, 1);
        context.lineTo(width / 2 + 5, 1);
        context.lineTo(width / 2, height - 1);
        context.fill();
      }), `out of memory, ${Model.failures.length === 1 ? 'once' : `${Text.count(Model.failures.length)} times`}`));
    }
    by('legend').replaceChildren(...bands, ...lines);
  }

  function writeFigures(moment, there, lent) {
    const room = Model.room(there.flatMap(({blocks}) => blocks));
    const held = lent.reduce((sum, block) => sum + block.size, 0);
    const asked = lent.reduce((sum, block) => sum + block.requested, 0);
    const had = Model.totalAt(moment);
    const figure = (id, name, value, words, note) => Text.make('div', {}, Text.make('dt', {}, name),
      Text.make('dd', {id, 'data-value': value}, words, Text.make('small', {}, note)));
    by('figures').replaceChildren(
      figure('lent', 'In use', held, Text.bytes(held), Text.plural(lent.length, 'block')),
      figure('asked', 'Requested', asked, Text.bytes(asked),
        held > 0 ? `${Text.percent(1 - asked / held)} lost to rounding` : 'nothing in use'),
      figure('had', 'Reserved from the device', had, Text.bytes(had), `peak ${Text.bytes(about.stats.total_max)}`),
      figure('free', 'Free in the pool', room.free, Text.bytes(room.free), `largest block ${Text.bytes(room.largest)}`),
      figure('fragmentation', 'Fragmentation', room.fragmentation.toFixed(4), room.fragmentation.toFixed(2),
        room.free > 0 ? `${Text.percent(1 - room.fragmentation)} of the free memory in one block` : 'nothing free'),
      figure('failures', 'Out of memory', about.stats.failures, Text.count(about.stats.failures),
        Model.failures.length > 0 ? `${Text.count(Model.failures.length)} in this trace` : 'since the pool was made'));
  }

  function writeMoment(moment) {
    const now = moment === count;
    const words = count === 0
      ? 'No events were kept: ask for a trace (mp_pool_trace) before the work that you want to see.'
      : moment === 0 ? 'Before the first event that is kept'
        : `${now ? 'Now, after' : 'After'} event ${Text.count(moment)} of ${Text.count(count)}, ` +
          `${Text.time(Model.events.time[moment - 1], 1000)}: ${Describe.event(moment - 1)}`;
    by('moment').textContent = words;
    by('first').disabled = by('previous').disabled = moment === 0;
    by('next').disabled = by('last').disabled = now;
    by('regions-when').textContent = now ? 'as they are now'
      : `as they were after event ${Text.count(moment)}; what was kept or waiting then counts as free`;
    const plot = by('plot');
    plot.setAttribute('aria-valuemin', 0);
    plot.setAttribute('aria-valuemax', count);
    plot.setAttribute('aria-valuenow', moment);
    plot.setAttribute('aria-valuetext', words);
  }

  /* ---- showing ---- */

  function writeAddress() {
    const parts = [];
    if (choice.event !== count) {
      parts.push(`event=${choice.event}`);
    }
    for (const name of Object.keys(usual)) {
      if (choice[name] !== usual[name]) {
        parts.push(`${name}=${encodeURIComponent(choice[name])}`);
      }
    }
    history.replaceState(null, '', parts.length > 0 ? `#${parts.join('&')}` : location.pathname + location.search);
  }

  function showMoment() {
    const moment = timeline.moment();
    const there = Model.regionsAt(moment);
    const lent = Model.lentAt(moment);
    const groups = timeline.groups();
    shown = moment;
    choice.event = moment;
    writeFigures(moment, there, lent);
    writeLegend();
    writeMoment(moment);
    Regions.show(there, groups, choice.width === 'scale', Find.show(groups, lent, moment));
    Tables.show(groups, lent, there, moment === count);
    document.body.dataset.event = moment;
  }

  function setupTimeline(more = {}) {
    timeline.setup({by: choice.by, all: choice.all === 'yes', axis: choice.axis, ...more});
    writeStates();
  }

  /* After another choice of colours or of the axis. */
  function regroup() {
    setupTimeline();
    showMoment();
    writeAddress();
  }

  /* Many moves of the pointer make one picture. */
  function scheduleMoment() {
    if (!scheduled && timeline.moment() !== shown) {
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        showMoment();
        writeAddress();
      });
    }
  }

  function readAddress() {
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (name === 'event' && /^\d{1,10}$/.test(value)) {
        choice.event = Math.min(count, Number(value));
        continue;
      }
      if (name === 'find' || (name === 'all' && value === 'yes')) {
        choice[name] = value.slice(0, 200);
        continue;
      }
      const input = [...document.querySelectorAll('fieldset input')].find((one) => one.name === name && one.value === value);
      if (input !== undefined) {
        choice[name] = value;
      }
    }
    for (const input of document.querySelectorAll('fieldset input')) {
      input.checked = choice[input.name] === input.value;
    }
    Find.look(choice.find);
  }

  function listen() {
    for (const input of document.querySelectorAll('fieldset input')) {
      input.addEventListener('change', () => {
        choice[input.name] = input.value;
        choice.all = input.name === 'by' ? 'no' : choice.all;
        regroup();
      });
    }
    Find.listen((text) => {
      choice.find = text;
      writeAddress();
    });
    const clicks = {
      'zoom-in': () => timeline.zoom(0.6), 'zoom-out': () => timeline.zoom(1 / 0.6), 'zoom-all': () => timeline.all(),
      first: () => timeline.setMoment(0), previous: () => timeline.setMoment(timeline.moment() - 1),
      next: () => timeline.setMoment(timeline.moment() + 1), last: () => timeline.setMoment(count),
    };
    for (const [id, act] of Object.entries(clicks)) {
      by(id).addEventListener('click', act);
    }
    const redraw = () => {
      timeline.draw();
      writeStates();
      writeLegend();
      Regions.draw();
    };
    let waiting = 0;
    addEventListener('resize', () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(redraw);
    });
    Paint.onTheme(redraw);
  }

  writeTitle();
  Tables.showStats();
  readAddress();
  setupTimeline({moment: choice.event});
  showMoment();
  listen();
  document.body.dataset.ready = 'yes';
})();
