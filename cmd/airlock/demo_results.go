//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/cmd/airlock/demo"
)

// results downloads what the turn made, checks each file and tells what it is. With the script a wrong result fails
// the demo; a model's result is described as it is.
func (d *demoRun) results(ctx context.Context, c *client, turn *demoTurn) error {
	d.say("\nResults in %s:", d.dir)
	missing := []string{demo.Report, demo.PDF, demo.Chart, demo.Slide}
	var errs []error
	for _, id := range turn.files {
		meta, path, err := c.download(ctx, notes{w: io.Discard}, id, d.dir)
		if err != nil {
			return fmt.Errorf("result %s: %w", id, err)
		}
		if err := giveBack(path); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == meta.Filename })
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines, err := describe(meta.Filename, content)
		if err != nil {
			lines = append(lines, "! "+strings.ReplaceAll(err.Error(), "\n", "; "))
			errs = append(errs, fmt.Errorf("%s: %w", meta.Filename, err))
		}
		d.say("  %-36s %9s  %s", printable(path), byteCount(int64(len(content))), lines[0])
		for _, l := range lines[1:] {
			d.say("  %-36s %9s  %s", "", "", l)
		}
	}
	d.say("  container %s, %s of work", turn.container, turn.took.Round(100*time.Millisecond))
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("no %s came back", strings.Join(missing, ", ")))
	}
	if err := errors.Join(errs...); err != nil && (d.script || len(missing) > 0) {
		return err
	}
	return nil
}

// describe says in at least one line what a result is; an error says what is wrong with it.
func describe(name string, content []byte) ([]string, error) {
	if name != demo.Report {
		line, err := demo.Describe(name, content)
		if err != nil {
			return nil, err
		}
		return []string{line}, nil
	}
	before, err := demo.Sample(name)
	if err != nil {
		return nil, err
	}
	c, err := demo.Compare(before, content)
	if err != nil {
		return nil, err
	}
	return reportLines(c), demo.CheckReport(c)
}

func reportLines(c *demo.Comparison) []string {
	section, tables := 0, 0
	for _, b := range c.NewBlocks {
		if b.Kind == "tbl" {
			tables++
		} else {
			section++
		}
	}
	lines := []string{
		fmt.Sprintf("Word: new section %q with a chart (%d paragraphs), %d table filled", demo.Heading, section, tables),
		fmt.Sprintf("%d paragraphs and tables as they were; %d other parts of the file byte for byte the same", c.KeptBlocks, c.Equal),
	}
	if len(c.Changed)+len(c.Added)+len(c.Removed) > 0 {
		lines = append(lines, "changed: "+strings.Join(c.Changed, ", "), "added: "+strings.Join(c.Added, ", "))
	}
	if len(c.Removed) > 0 {
		lines = append(lines, "removed: "+strings.Join(c.Removed, ", "))
	}
	return lines
}
