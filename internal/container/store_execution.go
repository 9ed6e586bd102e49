package container

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type executionRow struct {
	bun.BaseModel `bun:"table:executions,alias:execution"`

	ID          string `bun:"id,pk"`
	ContainerID string `bun:"container_id"`
	tenant.Owner
	Kind      Kind        `bun:"kind"`
	Outcome   Outcome     `bun:"outcome"`
	ExitCode  int         `bun:"exit_code"`
	StartedAt wire.Micros `bun:"started_at"`
	Wall      int64       `bun:"wall_usec"`
	CPU       int64       `bun:"cpu_usec"`
	Peak      int64       `bun:"peak_bytes"`
	In        int64       `bun:"bytes_in"`
	Out       int64       `bun:"bytes_out"`
}

// insertBatch keeps one statement below the number of parameters that databases take.
const insertBatch = 500

func insertExecutions(ctx context.Context, d *db.DB, all []Execution) error {
	rows := make([]executionRow, len(all))
	for i, e := range all {
		rows[i] = executionRow{
			ID: e.ID, ContainerID: string(e.ContainerID), Owner: e.Owner, Kind: e.Kind, Outcome: e.Outcome, ExitCode: e.ExitCode,
			StartedAt: wire.MicrosOf(e.StartedAt), Wall: e.Wall.Microseconds(), CPU: e.CPU.Microseconds(),
			Peak: e.PeakBytes, In: e.BytesIn, Out: e.BytesOut,
		}
	}
	return write(ctx, d, "insert executions", func(ctx context.Context, tx db.Tx) error {
		for len(rows) > 0 {
			batch := rows[:min(len(rows), insertBatch)]
			if _, err := tx.NewInsert().Model(&batch).Exec(ctx); err != nil {
				return err
			}
			rows = rows[len(batch):]
		}
		return nil
	})
}

// executions lists what was run in a container that the caller may use, the oldest first, at most 1,000.
func (s *Service) executions(ctx context.Context, caller tenant.Caller, id ID) ([]Execution, error) {
	var rows []executionRow
	q := s.DB.Read().NewSelect().Model(&rows).Where("execution.container_id = ?", string(id))
	if err := caller.Where(q).OrderExpr("execution.started_at, execution.id").Limit(1000).Scan(ctx); err != nil {
		return nil, fmt.Errorf("list executions of container %s: %w", id, err)
	}
	out := make([]Execution, len(rows))
	for i, r := range rows {
		out[i] = Execution{
			ID: r.ID, ContainerID: ID(r.ContainerID), Owner: r.Owner, Kind: r.Kind, Outcome: r.Outcome, ExitCode: r.ExitCode,
			StartedAt: r.StartedAt.Time(), Wall: time.Duration(r.Wall) * time.Microsecond, CPU: time.Duration(r.CPU) * time.Microsecond,
			PeakBytes: r.Peak, BytesIn: r.In, BytesOut: r.Out,
		}
	}
	return out, nil
}
