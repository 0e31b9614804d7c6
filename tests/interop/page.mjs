// Opens a live page in headless Chromium, at two widths and in two themes, until 300 samples have come. Prints what was seen
// as JSON. usage: node page.mjs URL FOLDER SAMPLES CHROMIUM [all]; without "all", each width has one theme
import { chromium } from "playwright-core";

const [, , url, folder, samples, executablePath, all] = process.argv;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const seen = { errors: [], foreign: [], bytes: 0, pages: [] };
const pages = [];
for (const [width, height] of [[1280, 900], [400, 860]]) {
  for (const colorScheme of all ? ["light", "dark"] : [width > 400 ? "light" : "dark"]) {
    const page = await browser.newPage({ viewport: { width, height }, colorScheme });
    page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.errors.push(message.text()); });
    page.on("pageerror", (error) => seen.errors.push(String(error)));
    page.on("request", (request) => { if (new URL(request.url()).origin !== new URL(url).origin) seen.foreign.push(request.url()); });
    if (pages.length === 0) {
      page.on("response", async (response) => { if (response.url().endsWith("/events")) return; const body = await response.body(); seen.bytes += body.length; });
    }
    await page.goto(url);
    pages.push([page, `${width}-${colorScheme}`]);
  }
}
for (const [page, name] of pages) {
  await page.waitForFunction((count) => Number(document.body.dataset.samples) >= count, Number(samples), { timeout: 60_000, polling: 200 });
  const found = await page.evaluate(() => {
    const painted = (canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let index = 3; index < data.length; index += 4) count += data[index] > 0;
      return count;
    };
    const canvases = [...document.querySelectorAll("main section canvas:not(.swatch)")];
    return {
      samples: Number(document.body.dataset.samples),
      painted: Object.fromEntries(canvases.map((canvas) => [canvas.id, canvas.hidden ? 0 : painted(canvas)])),
      rows: document.querySelectorAll("#ends tr").length,
      wide: document.documentElement.scrollWidth > innerWidth,
      small: [...document.querySelectorAll("main *, header *")].filter((element) => element.textContent.trim() && parseFloat(getComputedStyle(element).fontSize) < 9).length,
    };
  });
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  seen.pages.push({ name, ...found });
}
// The keyboard alone: the first end, the order of the table, the values of the chart.
const [keys] = pages[0];
await keys.focus("#choice button:nth-child(2)");
await keys.keyboard.press("Enter");
await keys.focus("#columns th:nth-child(3) button");
await keys.keyboard.press("Enter");
await keys.focus("#waves");
for (let press = 0; press < 5; press += 1) await keys.keyboard.press("ArrowLeft");
await keys.waitForTimeout(500);
seen.keyboard = await keys.evaluate(() => ({
  chosen: document.querySelector("#choice [aria-pressed=true]").textContent,
  sorted: document.querySelector("#columns [aria-sort]").textContent,
  readout: document.getElementById("at-waves").textContent,
}));
console.log(JSON.stringify(seen));
await browser.close();
