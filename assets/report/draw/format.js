/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them, and the little statistics that a page needs. Everything takes null for
 * "not there" and gives a dash for it. */
const NONE = "–";
const MINUS = "\u2212";

function isNumber(x) {
    return typeof x === "number" && Number.isFinite(x);
}

/* A proper minus, and none in front of a zero. */
const minusSign = (text) => (/^-[0.]*$/.test(text) ? text.slice(1) : text.replace(/^-/, MINUS));

/* `digits` places behind the point. */
function fixed(x, digits) {
    return isNumber(x) ? minusSign(x.toFixed(digits)) : NONE;
}

/* About `digits` significant digits, without an exponent where that is readable. */
function significant(x, digits = 3) {
    if (!isNumber(x)) return NONE;
    if (x === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(x)));
    if (size < -4 || size > 6)
        return minusSign(x.toExponential(digits - 1))
            .replace("e-", "e" + MINUS)
            .replace("e+", "e");
    return minusSign(size >= digits ? Math.round(x).toString() : x.toFixed(Math.max(0, digits - 1 - size)));
}

function signed(x, digits) {
    if (!isNumber(x)) return NONE;
    const text = fixed(x, digits);
    return x > 0 && Number(x.toFixed(digits)) !== 0 ? "+" + text : text;
}

/* 12345678 -> "12.3 M"; whole numbers under 10,000 stay as they are. */
function count(x) {
    if (!isNumber(x)) return NONE;
    if (Math.abs(x) < 1e4) return Number.isInteger(x) ? minusSign(String(x)) : significant(x, 3);
    const units = ["", " k", " M", " G", " T", " P", " E"];
    const step = Math.min(units.length - 1, Math.floor(Math.log10(Math.abs(x)) / 3));
    return significant(x / 1000 ** step, 3) + units[step];
}

function bytes(x) {
    if (!isNumber(x)) return NONE;
    return x < 1000 ? x + " B" : count(Math.max(x, 1e4)).replace(/ ?([kMGTPE]?)$/, " $1B");
}

function seconds(x) {
    if (!isNumber(x)) return NONE;
    if (x < 120) return significant(x, 3) + " s";
    const minutes = Math.round(x / 60);
    if (minutes < 10) return (x / 60).toFixed(1) + " min";
    return minutes < 120
        ? minutes + " min"
        : Math.floor(minutes / 60) + " h " + String(minutes % 60).padStart(2, "0") + " min";
}

function percent(x) {
    return isNumber(x) ? significant(100 * x, Math.abs(x) < 0.1 ? 2 : 3) + " %" : NONE;
}

const times = (x) => (isNumber(x) ? significant(x, 3) + " ×" : NONE);
const share = (x) => fixed(x, 3);

/* "± 0.004" to stand below a mean, in the unit and with the decimals of the mean; null where there is
 * but one value. */
function spreadText(values, format) {
    const middle = mean(values);
    const sd = spread(values);
    if (sd === null) return null;
    const [, digits, decimals = "", unit = ""] = /^\D?(\d+(?:\.(\d+))?)( ?\D*)$/.exec(format(middle)) || [];
    /* What one unit of the text is worth: 1000 for "46.6 k", 60 for "5.4 min". */
    const scale = Number(digits) > 0 ? Math.abs(middle) / Number(digits) : 1;
    return "± " + (digits === undefined ? format(sd) : fixed(sd / scale, decimals.length) + unit);
}

/* A formatter for the ticks of an axis: as many decimals as their step needs. */
function tickFormat(step) {
    const decimals =
        (/\.(\d+)$/.exec(Number(Math.abs(step).toPrecision(3)).toFixed(8).replace(/0+$/, "")) || [])[1] || "";
    return (v) => {
        if (Math.abs(v) < 1e-12) return "0";
        return Math.abs(v) >= 1e4 ? count(v) : fixed(v, decimals.length);
    };
}

const percentTick = (v) =>
    significant(100 * v, 3)
        .replace(/(\.\d*?)0+$/, "$1")
        .replace(/\.$/, "") + " %";
const bare = (v) =>
    significant(v, 3)
        .replace(/(\.\d*?)0+$/, "$1")
        .replace(/\.$/, "");

function mean(values) {
    const seen = values.filter(isNumber);
    return seen.length ? seen.reduce((a, b) => a + b, 0) / seen.length : null;
}

/* Sample standard deviation (n - 1); null for fewer than two values. */
function spread(values) {
    const seen = values.filter(isNumber);
    if (seen.length < 2) return null;
    const middle = mean(seen);
    return Math.sqrt(seen.reduce((a, b) => a + (b - middle) ** 2, 0) / (seen.length - 1));
}

function smallest(values) {
    const seen = values.filter(isNumber);
    return seen.length ? seen.reduce((a, b) => Math.min(a, b)) : null;
}

function largest(values) {
    const seen = values.filter(isNumber);
    return seen.length ? seen.reduce((a, b) => Math.max(a, b)) : null;
}

/* Exponential moving average, free of the bias of its start: s_i = sum of keep^(i-j) x_j over the sum of
 * the weights. */
function smoothed(values, keep) {
    let sum = 0;
    let weight = 0;
    return values.map((x) => {
        if (!isNumber(x)) return null;
        sum = keep * sum + (1 - keep) * x;
        weight = keep * weight + (1 - keep);
        return sum / weight;
    });
}

/* Points {x, y} cut to about `limit`: of each bucket the lowest and the highest stay, so that no spike
 * is lost. */
function thinned(points, limit) {
    if (points.length <= limit) return points;
    const out = [];
    const size = points.length / (limit / 2);
    for (let b = 0; b < limit / 2; b++) {
        const bucket = points
            .slice(Math.floor(b * size), Math.floor((b + 1) * size))
            .filter((p) => isNumber(p.y));
        if (!bucket.length) continue;
        const low = bucket.reduce((a, p) => (p.y < a.y ? p : a));
        const high = bucket.reduce((a, p) => (p.y > a.y ? p : a));
        out.push(...(low === high ? [low] : low.x < high.x ? [low, high] : [high, low]));
    }
    if (out[out.length - 1] !== points[points.length - 1]) out.push(points[points.length - 1]);
    return out;
}

/* low, then every multiple of step up to high; with a step of 2 counted from low (1, 3, 5), since a tick
 * at 2 would run into one at 1. */
function integerTicks(low, high, step) {
    const out = [low];
    const next = step > 2 ? Math.ceil((low + step / 2) / step) * step : low + step;
    for (let v = next; v <= high; v += step) if (v > low) out.push(v);
    return out;
}

/* A step of 1, 2 or 5 times a power of ten that cuts `range` into at most `parts`. */
function niceStep(range, parts) {
    const rough = range / Math.max(1, parts);
    const unit = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough * (1 - 1e-9));
}
