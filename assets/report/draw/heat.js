/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps in a grid, with one colour bar for all of them. Pixels are our own: a cell is a rectangle at
 * whole pixels, so that neighbours neither overlap nor leave hair lines. Values are read by pointing or
 * with arrow keys. */
/* Cells lap over their neighbours by this much: on paper a canvas is drawn as shapes, and seams would
 * show between them. */
const CELL_LAP = 0.6;
const HEAT_TITLE = 22;
const HEAT_AXIS = 18;
const HEAT_GAP = 20;
const HEAT_BAR = 34;

/* spec: {panels: [{title, rows, cols, values}], rowName, colName, max, format(value), label, reference:
 * {value, label}} values: rows x cols numbers or null, row 0 at the bottom when spec.upward. Rows and columns
 * count from spec.base (1 when absent). onPick(panel index, row, column): a click or Enter on a cell; picked
 * {p, r, c}: the cell with a frame. tall: rows keep a legible height however many there are. */
function heatGrid(host, fig, spec) {
    const width = host.clientWidth || 600;
    const grid = heatLayout(spec.panels, width, spec.tall);
    /* One canvas for each row of maps, so that paper can break between them. */
    for (let first = 0; first < spec.panels.length; first += grid.across) {
        const canvas = el("canvas", {
            role: "img",
            tabindex: "0",
            "aria-label": plain(spec.label) + ". Arrow keys read single values.",
        });
        host.append(canvas);
        const {ctx} = canvasSize(canvas, width, grid.height + HEAT_TITLE + HEAT_AXIS + HEAT_GAP);
        const boxes = spec.panels
            .slice(first, first + grid.across)
            .map((panel, i) => ({
                panel,
                index: first + i,
                left: grid.axis + i * (grid.width + HEAT_GAP + grid.axis),
                top: HEAT_TITLE,
                width: grid.width,
                height: grid.height,
            }));
        for (const box of boxes) drawHeatPanel(ctx, box, spec);
        for (const box of boxes)
            if (spec.picked && spec.picked.p === box.index) drawPicked(ctx, box, spec);
        heatReading(canvas, fig, boxes, spec);
    }
    const bar = el("canvas", {"aria-hidden": "true"});
    host.append(bar);
    drawHeatBar(
        canvasSize(bar, width, HEAT_BAR).ctx,
        spec,
        grid.axis,
        4,
        Math.min(260, width - grid.axis - 90),
    );
}

/* As many panels beside each other as leaves each a legible size; cells at most 44 pixels. */
function heatLayout(panels, width, tall) {
    const cols = largest(panels.map((p) => p.cols));
    const rows = largest(panels.map((p) => p.rows));
    const axis = 34;
    const least = clamp(cols * 9, 130, 420);
    const across = clamp(Math.floor((width + HEAT_GAP) / (least + axis + HEAT_GAP)), 1, panels.length);
    const room = (width - (across - 1) * HEAT_GAP) / across - axis - 2;
    const panelWidth = Math.floor(Math.min(room, Math.max(120, cols * 44)));
    const height = tall
        ? clamp(rows * 20, 44, Math.max(320, rows * 9))
        : clamp(rows * rowHeight(rows), 44, 320);
    return {across, axis, width: panelWidth, height: Math.round(height)};
}

function rowHeight(rows) {
    if (rows > 24) return 6;
    return rows > 8 ? 14 : 30;
}

const heatRow = (spec, panel, r) => (spec.upward ? panel.rows - 1 - r : r);

function cellBox(box, spec, r, c) {
    const row = heatRow(spec, box.panel, r);
    const {rows, cols} = box.panel;
    const x = Math.round(box.left + (c * box.width) / cols);
    const y = Math.round(box.top + (row * box.height) / rows);
    return {
        x,
        y,
        w: Math.round(box.left + ((c + 1) * box.width) / cols) - x,
        h: Math.round(box.top + ((row + 1) * box.height) / rows) - y,
    };
}

function drawHeatPanel(ctx, box, spec) {
    const {panel} = box;
    const {rows, cols} = panel;
    const format = spec.format || ((v) => significant(v, 2));
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = font(12, 600);
    ctx.fillStyle = cssColour("ink");
    ctx.fillText(fitText(ctx, plain(panel.title), box.width + 10), box.left, box.top - 8);
    ctx.font = font(11);
    const roomy = box.width / cols >= 34 && box.height / rows >= 16;
    for (let r = 0; r < rows; r++)
        for (let c = 0; c < cols; c++)
            drawCell(
                ctx,
                cellBox(box, spec, r, c),
                panel.values[r] && panel.values[r][c],
                spec,
                roomy && format,
            );
    ctx.fillStyle = cssColour("muted");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    const rowStep = Math.ceil(niceStep(rows, Math.max(1, box.height / 16))) || 1;
    const colStep = Math.ceil(niceStep(cols, Math.max(1, box.width / 30))) || 1;
    const base = spec.base ?? 1;
    for (const r of integerTicks(1, rows, rowStep))
        ctx.fillText(
            spec.rowName + (r - 1 + base),
            box.left - 5,
            cellBox(box, spec, r - 1, 0).y + cellBox(box, spec, r - 1, 0).h / 2,
        );
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const c of integerTicks(1, cols, colStep))
        ctx.fillText(
            spec.colName + (c - 1 + base),
            cellBox(box, spec, 0, c - 1).x + cellBox(box, spec, 0, c - 1).w / 2,
            box.top + box.height + 5,
        );
}

function drawCell(ctx, cell, value, spec, format) {
    const known = isNumber(value);
    const colour = known ? viridis(value / spec.max) : null;
    ctx.fillStyle = known ? rgb(colour) : cssColour("grid");
    ctx.fillRect(cell.x, cell.y, cell.w + CELL_LAP, cell.h + CELL_LAP);
    if (!format) return;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillStyle = known ? inkOn(colour) : cssColour("muted");
    ctx.fillText(known ? format(value) : "–", cell.x + cell.w / 2, cell.y + cell.h / 2);
}

function drawHeatBar(ctx, spec, left, top, width) {
    for (let x = 0; x < width; x++) {
        ctx.fillStyle = rgb(viridis(x / (width - 1)));
        ctx.fillRect(left + x, top, 1.5, 8);
    }
    ctx.fillStyle = cssColour("muted");
    ctx.font = font(11);
    ctx.textBaseline = "top";
    const ticks = linearTicks(0, spec.max, 5);
    for (const v of ticks) {
        ctx.textAlign = v === 0 ? "left" : "center";
        const text = bare(v);
        if (left + (v / spec.max) * width + ctx.measureText(text).width / 2 <= left + width + 14)
            ctx.fillText(text, left + (v / spec.max) * width, top + 12);
    }
    if (!spec.reference || !isNumber(spec.reference.value) || spec.reference.value > spec.max) return;
    const x = left + (spec.reference.value / spec.max) * width;
    ctx.fillStyle = cssColour("ink");
    ctx.fillRect(x - 0.75, top - 3, 1.5, 14);
    ctx.textAlign = "left";
    ctx.fillText("▏" + spec.reference.label, left + width + 18, top - 2);
}

/* Pointer and keyboard both move a cursor over (panel, row, column); the reading goes into the line
 * below the figure. */
function heatReading(canvas, fig, boxes, spec) {
    const at = {p: 0, r: 0, c: 0};
    const format = spec.read || spec.format || ((v) => significant(v, 3));
    const say = () => {
        const panel = boxes[at.p].panel;
        const value = panel.values[at.r] && panel.values[at.r][at.c];
        fig.readout.textContent =
            plain(panel.title, 40) +
            ", " +
            (spec.rowWord || "layer") +
            " " +
            (at.r + (spec.base ?? 1)) +
            ", " +
            (spec.colWord || "head") +
            " " +
            (at.c + (spec.base ?? 1)) +
            ": " +
            (isNumber(value) ? format(value) : "no value");
    };
    const pick = () => spec.onPick && spec.onPick(boxes[at.p].index, at.r, at.c);
    if (spec.onPick) canvas.style.cursor = "pointer";
    const follow = (event) => {
        const p = boxes.findIndex(
            (b) =>
                event.offsetX >= b.left &&
                event.offsetX < b.left + b.width &&
                event.offsetY >= b.top &&
                event.offsetY < b.top + b.height,
        );
        if (p < 0) return false;
        const b = boxes[p];
        const row = clamp(
            Math.floor(((event.offsetY - b.top) / b.height) * b.panel.rows),
            0,
            b.panel.rows - 1,
        );
        [at.p, at.r, at.c] = [
            p,
            heatRow(spec, b.panel, row),
            clamp(Math.floor(((event.offsetX - b.left) / b.width) * b.panel.cols), 0, b.panel.cols - 1),
        ];
        say();
        return true;
    };
    canvas.addEventListener("pointermove", follow);
    canvas.addEventListener("click", (event) => {
        if (follow(event)) pick();
    });
    canvas.addEventListener("keydown", (event) => {
        if (event.key === "Enter") return void pick();
        const move = {
            ArrowRight: [0, 1],
            ArrowLeft: [0, -1],
            ArrowUp: [spec.upward ? 1 : -1, 0],
            ArrowDown: [spec.upward ? -1 : 1, 0],
        }[event.key];
        if (!move) return undefined;
        event.preventDefault();
        let c = at.c + move[1];
        if (c < 0 && at.p > 0) [at.p, c] = [at.p - 1, boxes[at.p - 1].panel.cols - 1];
        else if (c >= boxes[at.p].panel.cols && at.p + 1 < boxes.length) [at.p, c] = [at.p + 1, 0];
        at.c = clamp(c, 0, boxes[at.p].panel.cols - 1);
        at.r = clamp(at.r + move[0], 0, boxes[at.p].panel.rows - 1);
        say();
        return undefined;
    });
}

function drawPicked(ctx, box, spec) {
    const {r, c} = spec.picked;
    if (r >= box.panel.rows || c >= box.panel.cols) return;
    const cell = cellBox(box, spec, r, c);
    ctx.lineWidth = 4;
    ctx.strokeStyle = "#ffffff";
    ctx.strokeRect(cell.x + 1, cell.y + 1, cell.w - 2, cell.h - 2);
    ctx.lineWidth = 2;
    ctx.strokeStyle = "#d02020";
    ctx.strokeRect(cell.x + 1, cell.y + 1, cell.w - 2, cell.h - 2);
}
