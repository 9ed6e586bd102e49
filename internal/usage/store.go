package usage

import (
	"context"
	"fmt"

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

// insertExecutions writes all or nothing. What is there already is left: a commit whose answer was lost is repeated.
func insertExecutions(ctx context.Context, d *db.DB, all []Execution) error {
	rows := make([]executionRow, len(all))
	for i, e := range all {
		rows[i] = executionRow{
			ID: e.ID, ContainerID: e.ContainerID, Owner: e.Owner, Kind: e.Kind, Outcome: e.Outcome, ExitCode: e.ExitCode,
			StartedAt: wire.MicrosOf(e.StartedAt), Wall: e.Wall.Microseconds(), CPU: e.CPU.Microseconds(),
			Peak: e.PeakBytes, In: e.BytesIn, Out: e.BytesOut,
		}
	}
	err := d.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		for len(rows) > 0 {
			batch := rows[:min(len(rows), insertBatch)]
			if _, err := tx.NewInsert().Model(&batch).On("CONFLICT (id) DO NOTHING").Exec(ctx); err != nil {
				return err
			}
			rows = rows[len(batch):]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert executions: %w", err)
	}
	return nil
}
