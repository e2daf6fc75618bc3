/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate costs: absolute numbers and their ratio to the baseline. */
const COSTS = [
    {
        label: "Training time",
        unit: "per run",
        best: "min",
        of: (run) => number(run.raw, "train", "seconds"),
        format: seconds,
    },
    {label: "Tokens/s", best: "max", of: (run) => number(run.raw, "train", "tokens_per_s"), format: count},
    {
        label: "Peak memory",
        best: "min",
        of: (run) => number(run.raw, "train", "peak_memory_bytes"),
        format: bytes,
    },
    {label: "Parameters", best: "min", own: "parameters", format: count},
    {label: "Gate parameters", own: "gate_parameters", format: count},
    {label: "FLOPs per token", unit: "forward", best: "min", own: "forward_flops_per_token", format: count},
    {label: "Training FLOPs", unit: "per run", best: "min", own: "train_flops", format: count},
];

function costValues(arm, cost) {
    return cost.own ? [number(arm.raw, cost.own)] : countedRuns(arm).map(cost.of);
}

function costSection(study) {
    return section(
        "cost",
        "Cost",
        "Times are wall-clock times of this machine; arms that ran at the same time disturb each " +
            "other. Small differences of time are noise unless all seeds agree.",
        costFigure(study),
        costTable(study),
    );
}

function costRatio(study, arm, cost, value) {
    const base = study.baseline ? mean(costValues(study.baseline, cost)) : null;
    return isNumber(value) && base > 0 ? value / base : null;
}

function costFigure(study) {
    const shown = COSTS.filter((c) => c.own !== "gate_parameters");
    return figure({
        id: "fig-cost",
        wide: true,
        title: "Cost relative to the baseline",
        caption: [
            "Each value over the baseline's mean (",
            el("bdi", null, plain(study.baseline ? study.baseline.name : NONE, 40)),
            "); pale marks are single seeds.",
        ],
        draw: (host) => {
            const arms = shownArms(study);
            const of = (arm, c) => costValues(arm, c).map((v) => costRatio(study, arm, c, v));
            const panels = shown
                .map((c) => ({
                    title: c.label,
                    unit: "ratio" + (c.best === "max" ? ", more is better" : ""),
                    reference: {value: 1, label: "baseline"},
                    marks: arms.map((arm) => {
                        const values = of(arm, c).filter(isNumber);
                        const one = mean(values);
                        return one === null
                            ? []
                            : (values.length > 1 ? values.map((value) => ({value, pale: true})) : []).concat([
                                  {value: one},
                              ]);
                    }),
                }))
                .filter((p) => p.marks.some((m) => m.length));
            if (!panels.length) return {empty: "the baseline has no recorded cost"};
            dotRows(
                host,
                armRows(arms),
                panels,
                "Time, throughput, memory, parameters and FLOPs of every arm relative to the baseline",
            );
            return {
                csv: [["arm"].concat(shown.map((c) => c.label + " ratio"))].concat(
                    arms.map((arm) => [arm.name].concat(shown.map((c) => mean(of(arm, c))))),
                ),
            };
        },
    });
}

function costTable(study) {
    const rows = study.arms.map((arm) => ({
        name: arm.name,
        style: arm.style,
        cells: COSTS.map((c) => {
            const values = costValues(arm, c);
            const ratio = costRatio(study, arm, c, mean(values));
            return cellOf(
                values,
                c.format,
                arm !== study.baseline && ratio !== null && c.own !== "gate_parameters"
                    ? fixed(ratio, 3) + " ×"
                    : null,
            );
        }),
        inner: arm.runs.map((run) => ({
            name: "seed " + run.seed,
            note: run.ok ? null : run.status,
            cells: COSTS.map((c) => (c.own ? null : cellOf([c.of(run)], c.format))),
        })),
    }));
    return dataTable({
        id: "tab-cost",
        label: "Cost",
        rows,
        columns: [{label: "Arm"}].concat(COSTS),
        note: "Below each value: its ratio to the baseline.",
    });
}
