// A list that new entries come to from above: it can be paused and emptied, and has a limit.

export class List {
  constructor(place, most) {
    this.place = place;
    this.most = most;
    this.isPaused = false;
    const pause = document.getElementById("pause");
    pause.addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      pause.setAttribute("aria-pressed", String(this.isPaused));
    });
    document.getElementById("empty").addEventListener("click", () => place.replaceChildren());
  }

  add(entry) {
    if (this.isPaused) return;
    this.place.querySelector(".empty")?.remove();
    this.place.prepend(entry);
    while (this.place.children.length > this.most) this.place.lastChild.remove();
  }
}
