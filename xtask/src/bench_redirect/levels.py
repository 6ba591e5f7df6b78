"""A redistribution problem as a mixed integer program over load levels, solved by HiGHS.

y[j, m] says that site j ends at load m, x[i, j, m] how much of i's demand it then serves; a site
below its own demand sends, one above it receives. With loads decided the rest is a transportation
problem, so flows need no integrality unless each origin has a target to keep.
"""

import json
import sys

import highspy
import numpy as np


def main(path, by_cost, seconds):
    with open(path) as file:
        problem = json.load(file)
    program = Program(problem, by_cost)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.5)
    solver.passModel(program.model())
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        print("objective", round(solver.getInfo().objective_function_value))
        print("proven")
    elif status == highspy.HighsModelStatus.kInfeasible:
        print("infeasible")
        print("proven")


class Program:
    """Columns and rows, gathered one by one. Violations are in units of 100 ppm."""

    def __init__(self, problem, by_cost):
        self.demand = problem["demand"]
        self.curves = problem["curves_ppm"]
        self.sites = range(len(self.demand))
        self.by_cost = by_cost
        self.price, self.upper, self.whole = [], [], []
        self.low, self.high, self.terms = [], [], []
        self.one = [self.row(1, 1) for _ in self.sites]
        self.sent = [self.row(0, 0) for _ in self.sites]
        target = problem["target_ppm"] // 100
        self.budget = []
        if by_cost:
            self.budget = [self.row(-np.inf, target * demand) for demand in self.demand]
        local = sum(d * self.late(i, i, d) for i, d in enumerate(self.demand))
        for site in self.sites:
            breaks = self.late(site, site, self.demand[site]) > target
            self.levels(site, breaks, target, local)

    def late(self, i, j, load):
        curve = self.curves[i][j]
        return curve[min(load, len(curve) - 1)] // 100

    def row(self, low, high):
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def column(self, price, upper, whole, terms):
        place = len(self.price)
        self.price.append(price)
        self.upper.append(upper)
        self.whole.append(whole)
        self.terms += [(row, place, value) for row, value in terms if value]
        return place

    def levels(self, j, breaks, target, local):
        """By cost, who breaks its target alone sends and nobody else does."""
        demand = self.demand[j]
        if not (self.by_cost and not breaks):
            for load in range(demand):
                self.sender(j, load)
        if self.by_cost and breaks:
            return
        self.sender(j, demand)
        for load in range(demand + 1, sum(self.demand) + 1):
            own = demand * self.late(j, j, load)
            if own > (target * demand if self.by_cost else local):
                break
            self.receiver(j, load)

    def sender(self, j, load):
        own, sent = load * self.late(j, j, load), self.demand[j] - load
        terms = [(self.one[j], 1), (self.sent[j], sent)]
        terms += [(self.budget[j], own)] if self.by_cost else []
        self.column(sent if self.by_cost else own, 1, True, terms)

    def receiver(self, j, load):
        own, room = self.demand[j] * self.late(j, j, load), load - self.demand[j]
        filled = self.row(0, 0)
        terms = [(self.one[j], 1), (filled, -room)]
        terms += [(self.budget[j], own)] if self.by_cost else []
        level = self.column(0 if self.by_cost else own, 1, True, terms)
        for i in self.sites:
            if i == j or self.demand[i] == 0:
                continue
            late, most = self.late(i, j, load), min(room, self.demand[i])
            terms = [(filled, 1), (self.sent[i], -1)]
            terms += [(self.budget[i], late)] if self.by_cost else []
            flow = self.column(0 if self.by_cost else late, most, self.by_cost, terms)
            if self.demand[i] < room:
                link = self.row(-np.inf, 0)
                self.terms += [(link, flow, 1), (link, level, -most)]

    def model(self):
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.price), len(self.low)
        lp.col_cost_ = np.array(self.price, dtype=float)
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.array(self.upper, dtype=float)
        lp.row_lower_ = np.array(self.low, dtype=float)
        lp.row_upper_ = np.array(self.high, dtype=float)
        kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
        lp.integrality_ = [kinds[whole] for whole in self.whole]
        rows, columns, values = (np.array(part) for part in zip(*self.terms))
        order = np.lexsort((rows, columns))
        starts = np.searchsorted(columns[order], np.arange(lp.num_col_ + 1))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_ = rows[order].astype(np.int32)
        lp.a_matrix_.value_ = values[order].astype(float)
        return lp


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "cost", float(sys.argv[3]))
