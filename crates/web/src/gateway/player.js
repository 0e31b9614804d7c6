'use strict';
// Page of the gateway: a player for each receiver, by Media Source Extensions.

const HISTORY = 12;
// Bounds of the time between the playhead and the end of the received video, in GOPs and seconds.
const NEAR = 0.7, FAR = 1.4, JUMP = 4;
const POLL_MS = 200, STEER_MS = 80;
const KEPT = 20;
const MediaSourceType = window.ManagedMediaSource || window.MediaSource;

const rateText = bits => bits >= 1e6 ? `${(bits / 1e6).toFixed(1)} Mbit/s` : `${Math.round(bits / 1e3)} kbit/s`;
const bytesText = bytes => bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.round(bytes / 1e3)} kB`;
const once = (target, event) => new Promise(done => target.addEventListener(event, done, { once: true }));

class Player {
  constructor({ name, path }) {
    this.path = path;
    this.stats = { stalls: 0, dropped: 0, frames: 0, jumps: 0, delay: null, errors: [], rungs: [] };
    const article = document.getElementById('receiver').content.cloneNode(true).firstElementChild;
    this.show = selector => article.querySelector(selector);
    this.show('h2').textContent = name;
    document.getElementById('receivers').append(article);
    this.video = this.show('video');
    this.video.addEventListener('waiting', () => { if (this.isPlaying && !this.isJumping) this.stats.stalls += 1; });
    this.video.addEventListener('seeked', () => { this.isJumping = false; });
    this.video.addEventListener('playing', () => this.onPlaying());
    const sound = this.show('.sound');
    sound.addEventListener('click', () => {
      this.video.muted = !this.video.muted;
      sound.textContent = this.video.muted ? 'Sound off' : 'Sound on';
      sound.setAttribute('aria-pressed', String(!this.video.muted));
    });
    this.run();
    setInterval(() => this.steer(), STEER_MS);
  }

  say(text) { this.show('.message').textContent = text; }

  onPlaying() {
    this.isPlaying = true;
    this.stats.firstPicture ??= performance.now();
    this.say('');
  }

  async run() {
    for (;;) {
      try {
        const answer = await fetch(this.path + 'list', { cache: 'no-store' });
        const list = await answer.json();
        if (list.note) this.say(list.note);
        else if (this.isPlaying) this.say('');
        if (list.buffers.length && list.video) await this.update(list);
      } catch (error) {
        this.fail(error);
      }
      await new Promise(done => setTimeout(done, POLL_MS));
    }
  }

  fail(error) {
    if (this.stats.errors.length < 100) this.stats.errors.push(String(error));
    // A closed source, or a decoding error, needs a new source.
    if (!(error instanceof TypeError)) this.source = null;
  }

  async update(list) {
    this.list = list;
    // A receiver that has started again counts from 0.
    if (!this.source || this.run_ !== list.run || this.instance !== list.instance || this.video.error) {
      if (this.video.error) this.stats.errors.push(this.video.error.message);
      await this.open(list);
    }
    for (const buffer of list.buffers) {
      if (buffer.n <= this.last) continue;
      this.last = buffer.n;
      this.stats.rungs.push(buffer.rung);
      if (buffer.rung === null) continue;
      const parts = [[this.videoBuffer, 'v'], [this.audioBuffer, 'a']];
      for (const [target, kind] of parts.filter(([target]) => target && (target === this.videoBuffer || buffer.audio))) {
        const answer = await fetch(`${this.path}${kind}${buffer.n}.m4s`);
        if (answer.ok) await this.append(target, await answer.arrayBuffer());
      }
      if (this.video.paused) this.video.play().catch(() => {});
    }
    this.describe(list);
  }

  // Begins to play the newest buffers.
  async open(list) {
    const types = [list.video, list.audio].map(codec => codec && `video/mp4; codecs="${codec}"`);
    types[1] = list.audio && `audio/mp4; codecs="${list.audio}"`;
    if (!MediaSourceType || !MediaSourceType.isTypeSupported(types[0])) return this.fallBack(list);
    const source = new MediaSourceType();
    this.isPlaying = false;
    [this.run_, this.instance] = [list.run, list.instance];
    this.video.disableRemotePlayback = true;
    this.video.src = URL.createObjectURL(source);
    await once(source, 'sourceopen');
    URL.revokeObjectURL(this.video.src);
    this.source = source;
    this.videoBuffer = source.addSourceBuffer(types[0]);
    const hasAudio = list.audio && MediaSourceType.isTypeSupported(types[1]);
    this.audioBuffer = hasAudio ? source.addSourceBuffer(types[1]) : null;
    this.show('.sound').hidden = !hasAudio;
    const init = async name => (await fetch(this.path + name, { cache: 'no-store' })).arrayBuffer();
    await this.append(this.videoBuffer, await init('init-video'));
    if (hasAudio) await this.append(this.audioBuffer, await init('init-audio'));
    const playable = list.buffers.filter(buffer => buffer.rung !== null);
    this.last = (playable.slice(-2)[0] || { n: 0 }).n - 1;
  }

  fallBack(list) {
    this.source = {};
    [this.run_, this.instance] = [list.run, list.instance];
    this.last = Infinity;
    if (this.video.canPlayType('application/vnd.apple.mpegurl')) this.video.src = this.path + 'master.m3u8';
    else this.say(`This browser cannot play ${list.video} by Media Source Extensions. Use another browser, or mpv or VLC with the address below.`);
  }

  async append(target, bytes) {
    const ended = once(target, 'updateend');
    target.appendBuffer(bytes);
    await ended;
    const old = this.video.currentTime - KEPT;
    if (target.buffered.length && target.buffered.start(0) < old - KEPT) {
      const removed = once(target, 'updateend');
      target.remove(0, old);
      await removed;
    }
  }

  // Holds the playhead behind the end of the received video by the speed, and jumps gaps.
  steer() {
    const { video, list } = this;
    if (!list || !video.buffered.length) return;
    const ranges = video.buffered, gop = list.gop / 1000;
    const end = ranges.end(ranges.length - 1), behind = end - video.currentTime;
    let at = null;
    for (let i = 0; i < ranges.length; i++) {
      if (video.currentTime >= ranges.start(i) - 0.05 && video.currentTime < ranges.end(i) - STEER_MS / 500) at = video.currentTime;
    }
    if (at === null || behind > JUMP * gop + 1) {
      // Begins in the last range, or in the range behind the gap.
      let next = null;
      for (let i = ranges.length - 1; i >= 0; i--) if (ranges.start(i) > video.currentTime) next = ranges.start(i) + 0.01;
      if (behind > JUMP * gop + 1 || next === null) next = Math.max(ranges.start(ranges.length - 1) + 0.01, end - gop - NEAR);
      if (next > video.currentTime + 0.02) {
        this.isJumping = true;
        video.currentTime = next;
        this.stats.jumps += 1;
      }
      return;
    }
    const least = 0.5 * gop + NEAR, most = gop + FAR;
    video.playbackRate = behind > most ? 1.08 : behind > most - 0.3 ? 1.03 : behind < least ? 0.94 : 1;
  }

  describe(list) {
    const { video, stats } = this, newest = list.buffers[list.buffers.length - 1];
    const rung = newest.rung === null ? null : list.rungs[newest.rung];
    this.show('.rung').textContent = rung ? `${newest.rung + 1} of ${list.rungs.length} · ${rung.width}×${rung.height}` : 'no picture';
    this.show('.received').textContent = newest.length ? `${bytesText(newest.prefix)} of ${bytesText(newest.length)}` : bytesText(newest.prefix);
    this.show('.rate').textContent = `${rateText(newest.prefix * 8000 / list.gop)}, ${rung ? rateText(rung.rate) : 'none'}`;
    const gop = list.gop / 1000, first = Math.floor(video.currentTime / gop);
    const playing = list.buffers.find(buffer => buffer.gop === first);
    if (playing && playing.capture) {
      stats.delay = (Date.now() - playing.capture) / 1000 - (video.currentTime - first * gop);
      this.show('.delay').textContent = `about ${stats.delay.toFixed(1)} s`;
    }
    const quality = video.getVideoPlaybackQuality();
    [stats.frames, stats.dropped] = [quality.totalVideoFrames, quality.droppedVideoFrames];
    this.show('.quality').textContent = `${stats.stalls}, ${stats.dropped} of ${stats.frames}`;
    const history = this.show('.history'), shown = list.buffers.slice(-HISTORY);
    history.setAttribute('aria-label', `Encodings of the last ${shown.length} seconds: ${shown.map(b => b.rung === null ? 'none' : b.rung + 1).join(', ')}`);
    history.replaceChildren(...Array.from({ length: HISTORY }, (_, i) => {
      const bar = document.createElement('i'), buffer = shown[i - HISTORY + shown.length];
      if (buffer && buffer.rung === null) bar.className = 'none';
      else if (buffer) bar.style.setProperty('--part', `${100 * (buffer.rung + 1) / list.rungs.length}%`);
      return bar;
    }));
  }
}

async function start() {
  const receivers = await (await fetch('/receivers', { cache: 'no-store' })).json();
  document.getElementById('about').textContent = receivers.about;
  document.getElementById('playlist').textContent = new URL(receivers.receivers[0].path + 'master.m3u8', location).href;
  window.players = receivers.receivers.map(receiver => new Player(receiver));
}
start();
