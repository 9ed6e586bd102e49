package guest

import (
	"context"
	"io"
)

// Cell runs Python code in the sandbox's resident interpreter, or in a fresh
// one. Cells of the resident interpreter wait for each other. What holds for
// the context and errors of Exec holds here; a canceled cell is interrupted
// first, so that the variables survive if it yields. The sandbox may be frozen
// while Call runs, and must be thawed before Call returns or ctx ends. Cell
// does not return before Call has.
func (c *Conn) Cell(ctx context.Context, cell Cell) (CellResult, error) {
	if err := checkCode("cell", cell.Code); err != nil {
		return CellResult{}, err
	}
	if err := checkEnv("cell", cell.Env); err != nil {
		return CellResult{}, err
	}
	if err := checkTools(&cell); err != nil {
		return CellResult{}, err
	}
	timeout := cell.Timeout
	if timeout <= 0 {
		timeout = DefaultCellTimeout
	}
	spec := &CellSpec{
		Code: int64(len(cell.Code)), Fresh: cell.Fresh, Env: envList(cell.Env),
		Timeout: timeout, Output: outputLimit(cell.OutputBytes), Tools: cell.Tools,
	}
	// No timeout for the follower: the clock starts when earlier cells ended,
	// which only the guest knows. Liveness is still watched.
	fl := &follower{c: c, op: "cell", limit: spec.Output, out: [2]io.Writer{cell.Stdout, cell.Stderr}}
	if len(cell.Tools) > 0 {
		fl.desk = &desk{c: c, names: cell.Tools, call: cell.Call}
	}
	exit, err := fl.run(ctx, &Frame{Type: TypeCell, Cell: spec}, cell.Code)
	if exit == nil {
		return CellResult{}, err
	}
	res := CellResult{Result: fl.result(exit), Started: exit.Started, StateLost: exit.StateLost, Holds: exit.Holds}
	if fl.desk != nil {
		res.Waited = fl.desk.waited
	}
	return res, err
}
