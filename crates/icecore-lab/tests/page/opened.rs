//! The page in a real browser.

use crate::browser::{self, Browser};
use crate::fixture;
use icecore_lab::page;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Every chart: whether its canvas has pixels, and how many have the colour of each of its series.
const DRAWN: &str = r#"
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const probe = document.createElement("span");
  document.body.append(probe);
  // A bar of height 0 has no pixels.
  const visible = (chart) => chart.series.filter((series) => chart.kind !== "bars" || series.y.some((value) => value > 0));
  const colors = (chart) => chart.heat ? ["c8"] : visible(chart).map((series) => "c" + series.color);
  return [...document.querySelectorAll("figure.chart")].map((figure) => {
    const chart = data.charts[figure.dataset.document].find((one) => one.id === figure.dataset.chart);
    const canvas = figure.querySelector(".plot canvas");
    if (!canvas) return { id: figure.id, canvas: false };
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let any = 0;
    for (let at = 3; at < pixels.length; at += 4) if (pixels[at]) any++;
    const counts = colors(chart).map((name) => {
      probe.className = name;
      const [red, green, blue] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
      let count = 0;
      for (let at = 0; at < pixels.length; at += 4) {
        const far = Math.abs(pixels[at] - red) + Math.abs(pixels[at + 1] - green) + Math.abs(pixels[at + 2] - blue);
        if (pixels[at + 3] > 30 && far < 40) count++;
      }
      return count;
    });
    return { id: figure.id, canvas: true, any, counts };
  });
})()"#;

/// What is shown: canvas and picture of the first chart, the background of the page, and the number of
/// scripts.
const SHOWN: &str = r#"
(() => {
  const shown = (selector) => getComputedStyle(document.querySelector("figure.chart " + selector)).display !== "none";
  return {
    canvas: shown(".plot"), picture: shown("svg.figure"), scripts: document.scripts.length,
    background: getComputedStyle(document.body).backgroundColor, broken: "broken" in window,
    wide: document.documentElement.scrollWidth > innerWidth,
  };
})()"#;

fn target_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

fn bytes(base64: &Value) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = base64.as_str().expect("text").bytes().filter(|letter| *letter != b'=').collect();
    let decode = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, letter| bits << 6 | u32::from(digit(*letter)));
        let bits = bits << (6 * (4 - group.len()) + 8);
        bits.to_be_bytes()[..group.len() - 1].to_vec()
    };
    letters.chunks(4).flat_map(decode).collect()
}

fn assert_drawn(browser: &mut Browser, count: usize) {
    let charts = browser.evaluate(DRAWN);
    let charts = charts.as_array().expect("a list");
    assert_eq!(charts.len(), count);
    for chart in charts {
        assert!(chart["any"].as_u64().is_some_and(|pixels| pixels > 500), "nothing is drawn: {chart}");
        let series = chart["counts"].as_array().expect("counts");
        assert!(series.iter().all(|pixels| pixels.as_u64() > Some(10)), "a series is not drawn: {chart}");
    }
}

#[test]
fn a_browser_draws_every_chart_and_asks_no_network() {
    let Some(program) = browser::find() else {
        eprintln!(
            "skipped: there is no Chromium, and `make tools` could not install it (as root: apt-get install chromium)"
        );
        return;
    };
    let documents = fixture::documents();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.html");
    fs::write(&path, page::render(&documents, &[]).expect("a page")).expect("written");
    let count = documents.iter().map(|document| icecore_lab::charts::of(&document.report).len()).sum();
    let kept = target_folder().join("lab-report");
    fs::create_dir_all(&kept).expect("a folder to keep pictures in");

    fs::copy(&path, kept.join("report.html")).expect("kept");

    let mut browser = Browser::start(&program);
    let size = json!({ "width": 1100, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", size);
    let mut backgrounds = Vec::new();
    browser.open(&path);
    for mode in ["light", "dark"] {
        let features = json!([{ "name": "prefers-color-scheme", "value": mode }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "media": "screen", "features": features }));
        browser.next_frame();
        assert_drawn(&mut browser, count);
        let shown = browser.evaluate(SHOWN);
        assert_eq!(shown["canvas"], json!(true), "{shown}");
        assert_eq!((&shown["picture"], &shown["broken"]), (&json!(false), &json!(false)), "{shown}");
        assert_eq!((&shown["scripts"], &shown["wide"]), (&json!(3), &json!(false)), "{shown}");
        backgrounds.push(shown["background"].clone());
        let picture = browser.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        fs::write(kept.join(format!("{mode}.png")), bytes(&picture["data"])).expect("kept");
    }
    assert_ne!(backgrounds[0], backgrounds[1], "dark looks like light");
    hover(&mut browser);
    print(&mut browser, &kept);
    assert_quiet(&browser, &path);
}

/// The legend follows the pointer.
fn hover(browser: &mut Browser) {
    let legend = "document.querySelector('[data-chart=\"throughput-curve\"] .u-legend').textContent";
    let before = browser.evaluate(legend);
    let middle = r#"(() => {
      const over = document.querySelector('[data-chart="throughput-curve"] .u-over');
      over.scrollIntoView({ block: "center" });
      const { x, y, width, height } = over.getBoundingClientRect();
      return [x + width / 2, y + height / 2];
    })()"#;
    let middle = browser.evaluate(middle);
    let moved = json!({ "type": "mouseMoved", "x": middle[0], "y": middle[1] });
    browser.call("Input.dispatchMouseEvent", moved);
    browser.next_frame();
    let after = browser.evaluate(legend);
    assert_ne!(before, after, "hovering shows nothing");
    assert!(after.as_str().is_some_and(|text| text.contains("205")), "the value under the pointer: {after}");
}

/// On paper the pictures stand in place of the canvases.
fn print(browser: &mut Browser, kept: &Path) {
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print", "features": [] }));
    let shown = browser.evaluate(SHOWN);
    assert_eq!((&shown["canvas"], &shown["picture"]), (&json!(false), &json!(true)), "{shown}");
    let paper = browser.call("Page.printToPDF", json!({ "printBackground": true }));
    let paper = bytes(&paper["data"]);
    assert!(paper.starts_with(b"%PDF") && paper.len() > 10_000);
    fs::write(kept.join("print.pdf"), paper).expect("kept");
}

/// The page asked for itself alone, and complained of nothing.
fn assert_quiet(browser: &Browser, path: &Path) {
    let page = format!("file://{}", path.display());
    let requests: Vec<&Value> = browser.events("Network.requestWillBeSent");
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0]["request"]["url"], json!(page));
    for method in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        assert_eq!(browser.events(method), [&Value::Null; 0], "{method}");
    }
}
