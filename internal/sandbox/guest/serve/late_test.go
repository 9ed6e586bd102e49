package serve

import "testing"

// When the clock and a word that the cell began are there at once, the word counts: a cell that was killed after it began
// is lost and not repeated. A kill would panic here, because there is no process.
func TestCellThatSaysLateThatItBeganIsNotKilled(t *testing.T) {
	t.Parallel()
	said := make(chan message, 2)
	said <- message{Type: "begin", Cell: 6} // of an earlier cell
	said <- message{Type: "begin", Cell: 7}
	c := &cellRun{in: &interp{forked: true, cells: 7, said: said}}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("it was killed: %v", r)
		}
	}()
	c.killUnbegun(said)
	if !c.begun {
		t.Error("what it said was not heard")
	}
}

func TestCellThatHasNotBegunIsKilledLate(t *testing.T) {
	t.Parallel()
	ended := make(chan message)
	close(ended)
	for name, said := range map[string]chan message{"silent": make(chan message, 1), "ended": ended, "gone": nil} {
		c := &cellRun{in: &interp{forked: true, cells: 1}}
		killed := false
		func() {
			defer func() { killed = recover() != nil }()
			c.killUnbegun(said)
		}()
		if !killed {
			t.Errorf("%s: it lives", name)
		}
	}
}
