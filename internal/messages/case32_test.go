package messages

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/file"
)

// The id of an output stands in the result block, where the shape is exact, and in the Files API, which is the second way to
// find it.
func TestCase32OutputIDStandsInTheBlockAndInTheList(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	m := w.ask(t, "", "```bash\necho x > \"$OUTPUT_DIR/book.xlsx\"\n```")
	var told, listed []string
	for _, o := range outputs(m)[0].Get("content").Elems() {
		if o.Type() != "bash_code_execution_output" || len(o.Members) != 2 {
			t.Errorf("output = %s", o.Text())
		}
		told = append(told, o.Get("file_id").Str())
	}
	page, err := w.env.Files.List(t.Context(), w.env.Caller, file.ListParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range page.Files {
		listed = append(listed, string(f.ID))
	}
	if d := cmp.Diff(listed, told); d != "" || len(told) != 1 {
		t.Errorf("ids of the outputs (-listed +told):\n%s", d)
	}
}
