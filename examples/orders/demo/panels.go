package demo

import (
	"context"
	"reflect"
)

// panels asks what only some services have to show.
func (w *watch) panels(context.Context, *answers) error { return nil }

func (a answers) equal(b answers) bool { return reflect.DeepEqual(a, b) }
