module github.com/postrider/postrider/test

go 1.26.0

require (
	github.com/postrider/postrider v0.0.0
	github.com/postrider/postrider/examples/orders v0.0.0
)

replace github.com/postrider/postrider => ..

replace github.com/postrider/postrider/examples/orders => ../examples/orders
