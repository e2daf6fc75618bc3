/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as SVG. What draws a figure draws on a canvas; here the same calls are written down as shapes instead. The
 * recorder knows as much of CanvasRenderingContext2D as our own figures and Chart.js use. */
let svgRecording = false;
let svgClips = 0;

const svgText = (text) =>
    String(text).replace(/[<>&"]/g, (c) => ({"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;"})[c]);
const svgNumber = (x) => String(Math.round(x * 100) / 100);

/* A colour as attributes: #rrggbbaa is split, because not every reader of SVG knows it. */
function svgPaint(kind, colour) {
    const long = /^#([0-9a-f]{6})([0-9a-f]{2})$/i.exec(colour);
    if (!long) return " " + kind + '="' + svgText(colour) + '"';
    const opacity = svgNumber(parseInt(long[2], 16) / 255);
    return " " + kind + '="#' + long[1] + '" ' + kind + '-opacity="' + opacity + '"';
}

class SvgContext {
    constructor(canvas) {
        this.canvas = canvas;
        this.parts = [];
        this.saved = [];
        this.path = "";
        this.real = document.createElement("canvas").getContext("2d");
        Object.assign(this, {
            m: [1, 0, 0, 1, 0, 0],
            clipName: null,
            dash: [],
            fillStyle: "#000000",
            strokeStyle: "#000000",
            lineWidth: 1,
            lineCap: "butt",
            lineJoin: "miter",
            miterLimit: 10,
            lineDashOffset: 0,
            globalAlpha: 1,
            font: "10px sans-serif",
            textAlign: "start",
            textBaseline: "alphabetic",
        });
    }
    keys() {
        return [
            "m",
            "clipName",
            "dash",
            "fillStyle",
            "strokeStyle",
            "lineWidth",
            "lineCap",
            "lineJoin",
            "miterLimit",
            "lineDashOffset",
            "globalAlpha",
            "font",
            "textAlign",
            "textBaseline",
        ];
    }
    save() {
        this.saved.push(Object.fromEntries(this.keys().map((k) => [k, this[k]])));
    }
    restore() {
        if (this.saved.length) Object.assign(this, this.saved.pop());
    }
    setTransform(a, b, c, d, e, f) {
        this.m = [a, b, c, d, e, f];
    }
    resetTransform() {
        this.m = [1, 0, 0, 1, 0, 0];
    }
    transform(a, b, c, d, e, f) {
        const [A, B, C, D, E, F] = this.m;
        this.m = [
            A * a + C * b,
            B * a + D * b,
            A * c + C * d,
            B * c + D * d,
            A * e + C * f + E,
            B * e + D * f + F,
        ];
    }
    translate(x, y) {
        this.transform(1, 0, 0, 1, x, y);
    }
    scale(x, y) {
        this.transform(x, 0, 0, y, 0, 0);
    }
    rotate(t) {
        this.transform(Math.cos(t), Math.sin(t), -Math.sin(t), Math.cos(t), 0, 0);
    }
    at(x, y) {
        const [a, b, c, d, e, f] = this.m;
        return svgNumber(a * x + c * y + e) + " " + svgNumber(b * x + d * y + f);
    }
    size() {
        return Math.sqrt(Math.abs(this.m[0] * this.m[3] - this.m[1] * this.m[2]));
    }
    beginPath() {
        this.path = "";
    }
    moveTo(x, y) {
        this.path += "M" + this.at(x, y);
    }
    lineTo(x, y) {
        this.path += (this.path ? "L" : "M") + this.at(x, y);
    }
    bezierCurveTo(a, b, c, d, x, y) {
        this.path += "C" + this.at(a, b) + " " + this.at(c, d) + " " + this.at(x, y);
    }
    quadraticCurveTo(a, b, x, y) {
        this.path += "Q" + this.at(a, b) + " " + this.at(x, y);
    }
    closePath() {
        if (this.path) this.path += "Z";
    }
    rect(x, y, w, h) {
        this.path +=
            "M" + [this.at(x, y), this.at(x + w, y), this.at(x + w, y + h), this.at(x, y + h)].join("L") + "Z";
    }
    arc(x, y, r, from, to, back) {
        let span = back ? from - to : to - from;
        if (span >= 2 * Math.PI) span = 2 * Math.PI;
        else span = ((span % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
        const turn = back ? -1 : 1;
        const point = (t) => [x + r * Math.cos(t), y + r * Math.sin(t)];
        const radius = svgNumber(r * this.size());
        this.lineTo(...point(from));
        for (const half of [0.5, 1])
            this.path +=
                "A" + radius + " " + radius + " 0 0 " + (back ? 0 : 1) + " " +
                this.at(...point(from + turn * span * half));
    }
    setLineDash(dash) {
        this.dash = dash.slice();
    }
    getLineDash() {
        return this.dash;
    }
    measureText(text) {
        this.real.font = this.font;
        return this.real.measureText(text);
    }
    common() {
        return (
            (this.globalAlpha < 1 ? ' opacity="' + svgNumber(this.globalAlpha) + '"' : "") +
            (this.clipName ? ' clip-path="url(#' + this.clipName + ')"' : "")
        );
    }
    strokes() {
        const width = this.lineWidth * this.size();
        return (
            svgPaint("stroke", this.strokeStyle) +
            ' stroke-width="' + svgNumber(width) + '"' +
            (this.dash.length ? ' stroke-dasharray="' + this.dash.map(svgNumber).join(" ") + '"' : "") +
            (this.lineJoin === "miter" ? "" : ' stroke-linejoin="' + this.lineJoin + '"')
        );
    }
    clip() {
        const name = "clip" + ++svgClips;
        this.parts.push('<clipPath id="' + name + '"><path d="' + this.path + '"/></clipPath>');
        this.clipName = name;
    }
    fill() {
        if (this.path)
            this.parts.push('<path d="' + this.path + '"' + svgPaint("fill", this.fillStyle) + this.common() + "/>");
    }
    stroke() {
        if (this.path)
            this.parts.push('<path d="' + this.path + '" fill="none"' + this.strokes() + this.common() + "/>");
    }
    boxed(x, y, w, h, draw) {
        const path = this.path;
        this.path = "";
        this.rect(x, y, w, h);
        draw.call(this);
        this.path = path;
    }
    fillRect(x, y, w, h) {
        this.boxed(x, y, w, h, this.fill);
    }
    strokeRect(x, y, w, h) {
        this.boxed(x, y, w, h, this.stroke);
    }
    clearRect() {}
    words(text, x, y, paint) {
        const anchor = {left: "start", start: "start", center: "middle", right: "end", end: "end"};
        const shift = {top: 0.82, hanging: 0.8, middle: 0.33, bottom: -0.2, ideographic: -0.2};
        const [, weight, size] = /^(?:\w+ )?(?:(\d+|bold|normal) )?([\d.]+)px/.exec(this.font) || [0, "400", "12"];
        const dy = (shift[this.textBaseline] || 0) * Number(size);
        this.parts.push(
            '<text transform="matrix(' + this.m.map(svgNumber).join(" ") + ')" x="' + svgNumber(x) + '" y="' +
                svgNumber(y + dy) + '" font-size="' + size + '" font-weight="' + (weight || 400) +
                '" font-family="system-ui, Helvetica, Arial, sans-serif" text-anchor="' +
                anchor[this.textAlign] + '"' + paint + this.common() + ">" + svgText(text) + "</text>",
        );
    }
    fillText(text, x, y) {
        this.words(text, x, y, svgPaint("fill", this.fillStyle));
    }
    strokeText(text, x, y) {
        this.words(text, x, y, ' fill="none"' + this.strokes());
    }
}

/* Makes a canvas write down what is drawn on it. */
function svgCanvas(canvas) {
    canvas.svg = new SvgContext(canvas);
    canvas.getContext = () => canvas.svg;
    return canvas.svg;
}

/* Draws a figure again, at the width that it has on the page, and gives it as SVG text. */
function figureSvg(fig) {
    const width = fig.host.clientWidth;
    const host = el("div", {class: fig.host.className, style: "position:absolute;left:-99999px;width:" + width + "px"});
    const shadow = {...fig, host, legend: el("ul"), readout: el("p"), charts: []};
    fig.host.parentNode.append(host);
    svgRecording = true;
    try {
        fig.spec.draw(host, shadow);
        const box = host.getBoundingClientRect();
        const top = 40;
        const keys = new SvgContext(null);
        keys.font = font(12);
        const laid = layOutKeys(keys, fig.keys || [], width);
        keys.fillStyle = cssColour("ink");
        keys.font = font(15, 600);
        keys.fillText(plain(fig.title.textContent), 0, 16);
        keys.font = font(12);
        keys.textBaseline = "middle";
        for (const k of laid.items) {
            drawSwatch(keys, k.x + 11, top + box.height + 12 + k.y, k.key);
            keys.fillStyle = cssColour("ink");
            keys.fillText(k.text, k.x + 28, top + box.height + 12 + k.y);
        }
        const drawn = [...host.querySelectorAll("canvas")].filter((c) => c.svg).map((c) => {
            const at = c.getBoundingClientRect();
            const move = svgNumber(at.left - box.left) + " " + svgNumber(top + at.top - box.top);
            return '<g transform="translate(' + move + ')">' + c.svg.parts.join("") + "</g>";
        });
        const size = svgNumber(width + 32) + " " + svgNumber(top + box.height + laid.height + 32);
        const [w, h] = size.split(" ");
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="' + w + '" height="' + h + '" viewBox="-16 -16 ' + size +
            '"><rect x="-16" y="-16" width="' + w + '" height="' + h + '"' + svgPaint("fill", cssColour("surface")) +
            "/>" + keys.parts.join("") + drawn.join("") + "</svg>"
        );
    } finally {
        svgRecording = false;
        for (const chart of shadow.charts) chart.destroy();
        host.remove();
    }
}

function figureSaveSvg(fig) {
    const text = figureSvg(fig);
    el("a", {
        download: fileName(fig.spec.id, "svg"),
        href: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text),
    }).click();
}
