// Zoom: width of the tracks in percent of the window. Ctrl and the wheel zoom around the pointer.
const scroll = document.querySelector('.scroll'), tracks = document.querySelector('.tracks');
const range = document.getElementById('zoom');
function zoom(percent, at) {
  percent = Math.min(20000, Math.max(100, percent));
  const x = at === undefined ? scroll.clientWidth / 2 : at;
  const place = (scroll.scrollLeft + x) / tracks.clientWidth;
  tracks.style.setProperty('--w', percent + '%');
  range.value = Math.log(percent / 100);
  scroll.scrollLeft = place * tracks.clientWidth - x;
}
range.addEventListener('input', () => zoom(100 * Math.exp(range.value)));
scroll.addEventListener('wheel', e => {
  if (!e.ctrlKey) return;
  e.preventDefault();
  const now = 100 * tracks.clientWidth / scroll.clientWidth;
  zoom(now * Math.exp(-e.deltaY / 300), e.clientX - scroll.getBoundingClientRect().left);
}, { passive: false });
const filter = document.getElementById('filter');
filter.addEventListener('input', () => {
  for (const row of document.querySelectorAll('#all tr')) row.hidden = !row.textContent.includes(filter.value);
});
